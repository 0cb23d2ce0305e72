// Reads the messages of one call until they have as many bytes as asked for: client ADDRESS METHOD REQUEST BYTES.
//
// The request is in hexadecimal. Prints the bytes and the digest of all messages. It accepts gzip, and zstd.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"
)

// A codec of bytes, for messages that stay encoded.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

// A compressor of Zstandard, as packages for gRPC have it.
type zstandard struct{}

func (zstandard) Name() string { return "zstd" }
func (zstandard) Compress(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w)
}
func (zstandard) Decompress(r io.Reader) (io.Reader, error) {
	return zstd.NewReader(r)
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, method, request, bytes string) error {
	encoding.RegisterCompressor(zstandard{})
	message, err := hex.DecodeString(request)
	if err != nil {
		return err
	}
	expected, err := strconv.Atoi(bytes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&message); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	digest := sha256.New()
	received := 0
	for received < expected {
		var response []byte
		if err := stream.RecvMsg(&response); err != nil {
			return err
		}
		digest.Write(response)
		received += len(response)
	}
	fmt.Println("go", received, hex.EncodeToString(digest.Sum(nil)))
	return nil
}
