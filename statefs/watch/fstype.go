package watch

import (
	"errors"

	"golang.org/x/sys/unix"
)

// remoteKinds names the file systems on which other machines or processes can change a folder
// without this kernel, by the f_type of statfs(2). The values missing from the man page (ceph,
// gfs2, kafs, lustre, gpfs, vboxsf, vmhgfs, prl_fs) are from linux/magic.h and the sources of the
// file systems. virtiofs shares report the type of FUSE.
var remoteKinds = map[uint32]string{
	unix.AFS_SUPER_MAGIC:   "afs",
	unix.AFS_FS_MAGIC:      "afs",
	unix.CEPH_SUPER_MAGIC:  "ceph",
	unix.CIFS_SUPER_MAGIC:  "cifs",
	unix.CODA_SUPER_MAGIC:  "coda",
	unix.FUSE_SUPER_MAGIC:  "fuse",
	unix.NCP_SUPER_MAGIC:   "ncpfs",
	unix.NFS_SUPER_MAGIC:   "nfs",
	unix.OCFS2_SUPER_MAGIC: "ocfs2",
	unix.SMB_SUPER_MAGIC:   "smb",
	unix.SMB2_SUPER_MAGIC:  "smb2",
	unix.V9FS_MAGIC:        "9p",
	0x01161970:             "gfs2",
	0x0bd00bd0:             "lustre",
	0x47504653:             "gpfs",
	0x786f4256:             "vboxsf",
	0xbacbacbc:             "vmhgfs",
	0x7c7c6673:             "prl_fs",
}

// remoteKind returns the name of path's file system if it can change without this kernel, else "".
func remoteKind(path string) string {
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(path, &stat)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return ""
		}
		return remoteKinds[uint32(stat.Type)]
	}
}
