//go:build unix

package export

import (
	"os"
	"syscall"
)

// keepOwner gives a draft the owner and the group of the file whose place it takes, or
// the group alone where the owner is not ours to give. What can't be kept is as of any
// new file.
func keepOwner(file *os.File, target string) {
	info, err := os.Stat(target)
	if err != nil {
		return
	}
	old, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if file.Chown(int(old.Uid), int(old.Gid)) != nil {
		_ = file.Chown(-1, int(old.Gid))
	}
}
