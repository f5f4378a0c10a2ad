package statefs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// KeyClaim records the operation that the submit of an idempotency key created. It is a file in
// keys/DAY/, where DAY is in UTC. The file is on disk before the operation is, so a submit that
// finds a claim without an operation may claim the key again.
type KeyClaim struct {
	Key string `json:"key"`
	ID  ID     `json:"id"`
	// RequestHash is the hash of the job and of all its parameters. The same key with another hash
	// is an error of the client.
	RequestHash string    `json:"request_hash"`
	At          time.Time `json:"at"`
}

// keyLimit bounds how much of a claim is read, in bytes.
const keyLimit = 8 << 10

// Keys are the claims of idempotency keys in keys/. It caches the most recently used folder.
type Keys struct {
	*storage
	mu   sync.Mutex
	day  string
	open *files.Folder
}

func keyFile(key string, at time.Time) string {
	sum := sha256.Sum256([]byte(key))
	return path.Join(keysDir, at.UTC().Format(time.DateOnly), hex.EncodeToString(sum[:])+".json")
}

// Claim writes claims and returns once they are as durable as the storage promises. A newer
// claim of the same key on the same day replaces the older one.
func (k *Keys) Claim(claims ...KeyClaim) error {
	if len(claims) == 0 {
		return nil
	}
	folders := make(map[string]*files.Folder)
	for _, c := range claims {
		day := c.At.UTC().Format(time.DateOnly)
		if folders[day] == nil {
			folder, err := k.folder(day)
			if err != nil {
				return fmt.Errorf("store idempotency keys: %w", err)
			}
			folders[day] = folder
		}
		data, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("store an idempotency key: %w", err)
		}
		if err := k.files.Replace(keyFile(c.Key, c.At), append(data, '\n'), false); err != nil {
			return fmt.Errorf("store an idempotency key: %w", err)
		}
	}
	for _, folder := range folders {
		if err := folder.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// folder returns the folder of a day. It creates the folder, and syncs its name, if it is missing.
func (k *Keys) folder(day string) (*files.Folder, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := filepath.Join(k.dir, keysDir, day)
	if k.day == day {
		if is, err := k.open.Is(at); err == nil && is {
			return k.open, nil
		}
	}
	if err := k.corrupt.makeFolder(path.Join(keysDir, day)); err != nil {
		return nil, err
	}
	opened, err := files.OpenFolder(at, k.durable())
	if err != nil {
		return nil, err
	}
	if err := k.syncFolder(keysDir); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	// Another call may be about to sync the previous folder; the garbage collector closes it.
	k.day, k.open = day, opened
	return opened, nil
}

func (k *Keys) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		return nil
	}
	k.day = ""
	return k.open.Close()
}

// Find returns the newest claim of an idempotency key that is not older than since. The error
// wraps fs.ErrNotExist if there is none. An unreadable claim counts as none.
func (k *Keys) Find(key string, since time.Time) (*KeyClaim, error) {
	// A clock that was set back must not hide earlier claims.
	for day := k.options.Now().UTC().AddDate(0, 0,
		1); !day.Before(since.UTC().Truncate(24 * time.Hour)); day = day.AddDate(0, 0, -1) {
		name := keyFile(key, day)
		data, err := k.readRegular(name, keyLimit)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrIrregular) {
			continue
		}
		if _, large := errors.AsType[*CorruptError](err); err != nil && !large {
			return nil, err
		}
		var c KeyClaim
		if json.Unmarshal(data, &c) == nil && c.Key == key && !c.ID.IsZero() && !c.At.Before(since) {
			return &c, nil
		}
	}
	return nil, fmt.Errorf("idempotency key: %w", fs.ErrNotExist)
}

// Sweep removes the claims of all days that ended before a time. Only the daemon does so.
func (k *Keys) Sweep(before time.Time) error {
	entries, err := k.readFolder(keysDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", keysDir, err)
	}
	for _, entry := range entries {
		day, err := time.Parse(time.DateOnly, entry.Name())
		if err != nil || !entry.IsDir() || !day.AddDate(0, 0, 1).Before(before.UTC()) {
			continue
		}
		if err := k.root.RemoveAll(path.Join(keysDir, entry.Name())); err != nil {
			return fmt.Errorf("remove old idempotency keys: %w", err)
		}
	}
	return nil
}
