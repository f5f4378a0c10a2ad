package cli

import (
	"io"
	"log/slog"
)

// newLogger makes the daemon's logger from two settings that are already checked.
func newLogger(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
