package export

import "os"

// lock is what came of locking a file.
type lock int

const (
	// lockHeld lasts until the file is closed, or its process is gone.
	lockHeld lock = iota
	// lockTaken is another process's.
	lockTaken
	// lockUnknown is for file systems without locks: nobody can tell what a killed
	// process left from what another one is writing, and nothing is swept.
	lockUnknown
)

// folderLock is held by whoever changes which files of a set a folder has.
type folderLock struct{ dir *os.File }

func (l folderLock) unlock() {
	if l.dir != nil {
		l.dir.Close()
	}
}
