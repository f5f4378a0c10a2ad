package catalog

import "time"

// CrashLimit is a budget of deaths: work that dies Burst times Within a time is not started again. In a [Definition]
// a field that the job does not give is 0.
type CrashLimit struct {
	Burst  int           `json:"burst"`
	Within time.Duration `json:"within"`
}

// DefaultCrashLimit is the limit of a daemon whose configuration has none.
var DefaultCrashLimit = CrashLimit{Burst: 5, Within: 10 * time.Minute}

// MaxCrashBurst is the largest Burst, MaxCrashWithin the longest Within: the record keeps the time of each death.
const (
	MaxCrashBurst  = 100
	MaxCrashWithin = 30 * 24 * time.Hour
)

// Or returns the limit with its missing fields taken from other.
func (l CrashLimit) Or(other CrashLimit) CrashLimit {
	if l.Burst == 0 {
		l.Burst = other.Burst
	}
	if l.Within == 0 {
		l.Within = other.Within
	}
	return l
}

func (j *jobDecoder) crashLimit(n *node) {
	j.mapping(n, crashLimitKeys, func(key string, _, n *node) {
		switch key {
		case "burst":
			v, ok := j.integer(n, key)
			if ok && (v < 1 || v > MaxCrashBurst) {
				j.fail(n, "the death with this number stops the work: 1 to 100", "burst cannot be %d", v)
			}
			j.def.CrashLimit.Burst = int(v)
		case "within":
			j.def.CrashLimit.Within = j.duration(n, key, MaxCrashWithin, "leave the key out for the daemon's own")
		}
	})
}
