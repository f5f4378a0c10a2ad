package s3test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Kind is a program that speaks S3.
type Kind struct {
	// Name is that of the program, Install the command that gets it.
	Name, Install string
}

// The servers that tests run against.
var (
	Versity = Kind{"versitygw", "go install -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0"}
	MinIO   = Kind{"minio", "go install -ldflags='-s -w' github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"}
)

// Kinds returns all kinds; the first is always available.
func Kinds() []Kind { return []Kind{Versity, MinIO} }

// Find returns the path of the program. The error says how to install it.
func Find(kind Kind) (string, error) {
	if path, err := exec.LookPath(kind.Name); err == nil {
		return path, nil
	}
	for _, dir := range []string{os.Getenv("GOBIN"), goPath("bin")} {
		if dir == "" {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, kind.Name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; get it with: %s", kind.Name, kind.Install)
}

// goPath is a folder below the first of GOPATH.
func goPath(name string) string {
	list := filepath.SplitList(os.Getenv("GOPATH"))
	if len(list) > 0 {
		return filepath.Join(list[0], name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, "go", name)
}
