// The control plane of go-control-plane with one service, whose assignment changes by a line on standard input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The assignment that the other server computes of the same instances.
func assignment(instances, change int) *endpoint.ClusterLoadAssignment {
	endpoints := make([]*endpoint.LbEndpoint, instances)
	for i := range endpoints {
		port := uint32(1000 + i)
		if i == 0 {
			port = uint32(20000 + change)
		}
		endpoints[i] = &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address:       "10.0.0.1",
				PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
			}}},
		}}}
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: "web",
		Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:            &core.Locality{},
			LbEndpoints:         endpoints,
			LoadBalancingWeight: wrapperspb.UInt32(uint32(instances)),
		}},
	}
}

func main() {
	instances, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	// The cache for resources that do not differ between clients: a change costs what has changed.
	linear := cache.NewLinearCache(resource.EndpointType, cache.WithInitialResources(map[string]types.Resource{
		"web": assignment(instances, 0),
	}))
	mux := &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches:        map[string]cache.Cache{resource.EndpointType: linear},
	}
	service := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(service, server.NewServer(context.Background(), mux, nil))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := service.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	fmt.Println("serves on", listener.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for change := 1; lines.Scan(); change++ {
		if err := linear.UpdateResource("web", assignment(instances, change)); err != nil {
			log.Fatal(err)
		}
	}
}
