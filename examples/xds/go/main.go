// Calls a service of gRPC by xDS, without a proxy: the client learns from watch-fanout which instances there are, and
// divides its calls between them.
//
//	GRPC_XDS_BOOTSTRAP=../bootstrap.json go run . xds:///greeter
//
// It prints the instance that has answered, or the error, one call a line.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	_ "google.golang.org/grpc/xds"
)

const interval = 20 * time.Millisecond

func main() {
	target := "xds:///greeter"
	if len(os.Args) > 1 {
		target = os.Args[1]
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := grpc_health_v1.NewHealthClient(connection)
	for ; ; time.Sleep(interval) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var answered peer.Peer
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&answered), grpc.WaitForReady(true))
		cancel()
		if err != nil {
			fmt.Println("error:", err)
		} else {
			fmt.Println(answered.Addr)
		}
	}
}
