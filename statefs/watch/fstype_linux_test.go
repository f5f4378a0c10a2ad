package watch

import "testing"

func TestRemoteKind(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc", "/does/not/exist"} {
		if kind := remoteKind(path); kind != "" {
			t.Errorf("%s: %q", path, kind)
		}
	}
	// The values of statfs(2), spelled out.
	for magic, kind := range map[uint32]string{
		0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x01021997: "9p",
		0x65735546: "fuse", 0x00c36400: "ceph", 0x5346414f: "afs", 0x73757245: "coda",
	} {
		if remoteKinds[magic] != kind {
			t.Errorf("%#x: %q, want %q", magic, remoteKinds[magic], kind)
		}
	}
}
