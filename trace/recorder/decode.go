package recorder

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// decode returns the plain form of a body that was sent with a Content-Encoding, of at most limit bytes: a few bytes may
// stand for very many.
func decode(text []byte, encoding string, limit int64) ([]byte, error) {
	var in io.Reader
	switch encoding {
	case "", "identity":
		return text, nil
	case "gzip", "x-gzip":
		gz, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("decoding gzip: %w", err)
		}
		in = gz
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(text), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(uint64(limit)+1))
		if err != nil {
			return nil, fmt.Errorf("decoding zstd: %w", err)
		}
		defer z.Close()
		in = z
	default:
		return nil, fmt.Errorf("content encoding %q is not known", encoding)
	}
	plain, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(plain)) > limit {
		err = fmt.Errorf("more than %d bytes when decoded", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", encoding, err)
	}
	return plain, nil
}
