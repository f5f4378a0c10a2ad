package submit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

var update = flag.Bool("update", false, "write what the vectors come to into docs/hash-vectors.json")

const vectorFile = "../../docs/hash-vectors.json"

// vectors is the published file: anybody can check an implementation of their own against it.
type vectors struct {
	About       []string `json:"about"`
	Definitions string   `json:"definitions"`
	Vectors     []vector `json:"vectors"`
}

type vector struct {
	Name string `json:"name"`
	Job  string `json:"job"`
	// Given is the body of the submit, as text: some of it is no JSON that every reader could give back.
	Given string `json:"given"`
	// Params is what runs, CanonicalParams what is hashed.
	Params          string `json:"params,omitempty"`
	CanonicalParams string `json:"canonical_params,omitempty"`
	RequestHash     string `json:"request_hash,omitempty"`
	// Same names the vector that has the same hash.
	Same    string `json:"same,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func TestHashVectors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var file vectors
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	defs, err := catalog.Parse(vectorFile, []byte(file.Definitions))
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]*catalog.Definition{}
	for _, d := range defs {
		jobs[d.Address()] = d
	}
	hashes := map[string]string{}
	for i := range file.Vectors {
		v := &file.Vectors[i]
		got := hashed(t, jobs[v.Job], *v)
		if *update {
			*v = got
		} else if got != *v {
			t.Errorf("%s:\n%+v, published is\n%+v", v.Name, got, *v)
		}
		if v.Refused == "" {
			checkIndependently(t, *v)
		}
		if v.Same != "" && v.RequestHash != hashes[v.Same] {
			t.Errorf("%s has not the hash of %s", v.Name, v.Same)
		}
		if v.Same == "" && v.RequestHash != "" {
			for name, hash := range hashes {
				if hash == v.RequestHash {
					t.Errorf("%s has the hash of %s and does not say so", v.Name, name)
				}
			}
		}
		hashes[v.Name] = v.RequestHash
	}
	if *update {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorFile, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// hashed is what this code makes of a vector.
func hashed(t *testing.T, def *catalog.Definition, v vector) vector {
	t.Helper()
	if def == nil {
		t.Fatalf("%s: there is no job %s", v.Name, v.Job)
	}
	v.Params, v.CanonicalParams, v.RequestHash, v.Refused = "", "", "", ""
	params, err := def.BindJSON([]byte(v.Given))
	if err != nil {
		v.Refused = err.Error()
		return v
	}
	v.Params, v.CanonicalParams = string(params.JSON()), def.Identity(params)
	v.RequestHash = statefs.RequestHash(def.Group, def.Name, v.CanonicalParams)
	return v
}

// checkIndependently comes to the published hash without any code of this project.
func checkIndependently(t *testing.T, v vector) {
	t.Helper()
	for what, text := range map[string]string{"params": v.Params, "canonical_params": v.CanonicalParams} {
		canonical, err := jcs.Transform([]byte(text))
		if err != nil || string(canonical) != text {
			t.Errorf("%s: %s %q is %q for another implementation (%v)", v.Name, what, text, canonical, err)
		}
	}
	sum := sha256.Sum256([]byte(v.Job + "\x00" + v.CanonicalParams))
	if hex.EncodeToString(sum[:]) != v.RequestHash || strings.ToLower(v.RequestHash) != v.RequestHash {
		t.Errorf("%s: the hash is not %s", v.Name, v.RequestHash)
	}
}
