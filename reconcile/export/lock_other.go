//go:build !unix

package export

import "os"

func lockFile(*os.File) lock { return lockUnknown }

func lockFolder(string) folderLock { return folderLock{} }
