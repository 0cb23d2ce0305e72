// Clients of xDS on a number of connections that ask for the assignment of one service and confirm each response. It
// prints when all of them have the first response, and then when all of them have the next one, with the bytes that they got.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

var names = []string{"web"}

// Counts the responses of all clients, which come in rounds: one to each.
type rounds struct {
	clients  int64
	received atomic.Int64
	bytes    atomic.Int64
}

func (r *rounds) count(message proto.Message) {
	r.bytes.Add(int64(proto.Size(message)))
	if received := r.received.Add(1); received%r.clients == 0 {
		fmt.Println("round", received/r.clients-1, r.bytes.Load())
	}
}

func main() {
	address, protocol := os.Args[1], os.Args[2]
	clients, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	connections, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	services := make([]discovery.AggregatedDiscoveryServiceClient, connections)
	for i := range services {
		services[i] = connect(address)
	}
	counted := &rounds{clients: int64(clients)}
	opening := make(chan struct{}, 50)
	for i := range clients {
		opening <- struct{}{}
		go func() {
			opened := func() { <-opening }
			node := &core.Node{Id: fmt.Sprint("client-", i), Cluster: "bench"}
			service := services[i%connections]
			if protocol == "delta" {
				delta(service, node, counted, opened)
			} else {
				state(service, node, counted, opened)
			}
		}()
	}
	select {}
}

func connect(address string) discovery.AggregatedDiscoveryServiceClient {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return discovery.NewAggregatedDiscoveryServiceClient(connection)
}

func state(client discovery.AggregatedDiscoveryServiceClient, node *core.Node, counted *rounds, opened func()) {
	stream, err := client.StreamAggregatedResources(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	request := &discovery.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNames: names}
	for first := true; ; first = false {
		if err := stream.Send(request); err != nil {
			log.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			log.Fatal(err)
		}
		if first {
			opened()
		}
		counted.count(response)
		request = &discovery.DiscoveryRequest{
			TypeUrl: resource.EndpointType, ResourceNames: names,
			VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
		}
	}
}

func delta(client discovery.AggregatedDiscoveryServiceClient, node *core.Node, counted *rounds, opened func()) {
	stream, err := client.DeltaAggregatedResources(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	request := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names}
	for first := true; ; first = false {
		if err := stream.Send(request); err != nil {
			log.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			log.Fatal(err)
		}
		if first {
			opened()
		}
		counted.count(response)
		request = &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: response.GetNonce()}
	}
}
