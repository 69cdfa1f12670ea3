//go:build unix

package export

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks an open file or folder, if nobody else has it.
func lockFile(file *os.File) lock {
	switch err := flock(file, syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return lockHeld
	case errors.Is(err, syscall.EWOULDBLOCK):
		return lockTaken
	}
	return lockUnknown
}

// lockFolder waits for its turn. Where folders can't be locked it is everybody's.
func lockFolder(path string) folderLock {
	dir, err := os.Open(path)
	if err != nil {
		return folderLock{}
	}
	_ = flock(dir, syscall.LOCK_EX)
	return folderLock{dir}
}

func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
