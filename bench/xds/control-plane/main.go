// The control plane of go-control-plane. A line on standard input, NUMBER FIRST COUNT, changes the first instance of COUNT
// services from FIRST on: the number is in its address.
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
func assignment(service string, instances, number int) *endpoint.ClusterLoadAssignment {
	endpoints := make([]*endpoint.LbEndpoint, instances)
	for i := range endpoints {
		address := "10.0.0.0"
		if i == 0 {
			address = fmt.Sprintf("10.%d.%d.%d", number>>16, number>>8&255, number&255)
		}
		endpoints[i] = &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address:       address,
				PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(1000 + i)},
			}}},
		}}}
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: service,
		Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:            &core.Locality{},
			LbEndpoints:         endpoints,
			LoadBalancingWeight: wrapperspb.UInt32(uint32(instances)),
		}},
	}
}

func main() {
	services, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	instances, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	assignments := func(number, first, count int) map[string]types.Resource {
		changed := map[string]types.Resource{}
		for i := range count {
			service := fmt.Sprint("service-", (first+i)%services)
			changed[service] = assignment(service, instances, number)
		}
		return changed
	}
	// The cache for resources that do not differ between clients: a change costs what has changed.
	linear := cache.NewLinearCache(resource.EndpointType, cache.WithInitialResources(assignments(0, 0, services)))
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
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var number, first, count int
		if _, err := fmt.Sscan(lines.Text(), &number, &first, &count); err != nil {
			log.Fatal(err)
		}
		if err := linear.UpdateResources(assignments(number, first, count), nil); err != nil {
			log.Fatal(err)
		}
	}
}
