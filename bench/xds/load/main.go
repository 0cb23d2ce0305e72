// Clients of xDS on a number of connections that ask for the assignments of all services, or of one each, and confirm each
// response. It prints when all of them have the first response, and then when all of them have the next one, with the bytes
// that they got. With an epoch the addresses are times, and it prints on request what was delivered, and how late.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

var (
	address     = flag.String("address", "", "of the server")
	protocol    = flag.String("protocol", "delta", "delta or state")
	clients     = flag.Int("clients", 1, "number of streams")
	connections = flag.Int("connections", 1, "number of connections")
	services    = flag.Int("services", 1, "number of services")
	epoch       = flag.Int64("epoch", 0, "when the times in addresses begin, in Unix milliseconds; 0: they are none, and a client asks for all services")
)

// Of so many clients one decodes what it gets.
const sampled = 100

// Counts the responses of all clients.
type counter struct {
	received atomic.Int64
	bytes    atomic.Int64
	last     atomic.Int64
	mu       sync.Mutex
	late     []int64
	newest   map[int]int64
}

var counted = counter{newest: map[int]int64{}}

func (c *counter) count(client int, message proto.Message, first *anypb.Any) {
	c.bytes.Add(int64(proto.Size(message)))
	received := c.received.Add(1)
	if round := received/int64(*clients) - 1; received%int64(*clients) == 0 && (*epoch == 0 || round == 0) {
		fmt.Println("round", round, c.bytes.Load())
	}
	if *epoch == 0 {
		return
	}
	now := time.Now().UnixMilli() - *epoch
	c.last.Store(now)
	if client%sampled != 0 {
		return
	}
	number := numberOf(first)
	c.mu.Lock()
	defer c.mu.Unlock()
	if number > 0 {
		c.late = append(c.late, now-number)
	}
	c.newest[client] = number
}

// Prints what has come: the responses, how late they were in milliseconds, when the last one came, and the oldest state that a
// sampled client has.
func (c *counter) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.late)
	quantile := func(share float64) int64 {
		if len(c.late) == 0 {
			return -1
		}
		return c.late[int(share*float64(len(c.late)-1))]
	}
	oldest := int64(-1)
	for _, number := range c.newest {
		if oldest < 0 || number < oldest {
			oldest = number
		}
	}
	fmt.Println("report", c.received.Load(), quantile(0.5), quantile(0.99), c.last.Load(), oldest)
}

// The number in the address of the first instance, 10.x.y.z.
func numberOf(assignment *anypb.Any) int64 {
	var decoded endpoint.ClusterLoadAssignment
	if err := assignment.UnmarshalTo(&decoded); err != nil {
		log.Fatal(err)
	}
	socket := decoded.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
	var x, y, z int64
	if _, err := fmt.Sscanf(socket.GetAddress(), "10.%d.%d.%d", &x, &y, &z); err != nil {
		log.Fatal(err)
	}
	return x<<16 | y<<8 | z
}

func main() {
	flag.Parse()
	targets := make([]discovery.AggregatedDiscoveryServiceClient, *connections)
	for i := range targets {
		targets[i] = connect()
	}
	var all []string
	for i := range *services {
		all = append(all, fmt.Sprint("service-", i))
	}
	opening := make(chan struct{}, 50)
	go func() {
		for i := range *clients {
			opening <- struct{}{}
			go func() {
				opened := func() { <-opening }
				names := all
				if *epoch != 0 {
					names = all[i%*services : i%*services+1]
				}
				node := &core.Node{Id: fmt.Sprint("client-", i), Cluster: "bench"}
				target := targets[i%*connections]
				if *protocol == "delta" {
					delta(target, i, node, names, opened)
				} else {
					state(target, i, node, names, opened)
				}
			}()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		counted.report()
	}
	select {}
}

func connect() discovery.AggregatedDiscoveryServiceClient {
	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return discovery.NewAggregatedDiscoveryServiceClient(connection)
}

func state(target discovery.AggregatedDiscoveryServiceClient, client int, node *core.Node, names []string, opened func()) {
	stream, err := target.StreamAggregatedResources(context.Background(), grpc.WaitForReady(true))
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
		counted.count(client, response, response.GetResources()[0])
		request = &discovery.DiscoveryRequest{
			TypeUrl: resource.EndpointType, ResourceNames: names,
			VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
		}
	}
}

func delta(target discovery.AggregatedDiscoveryServiceClient, client int, node *core.Node, names []string, opened func()) {
	stream, err := target.DeltaAggregatedResources(context.Background(), grpc.WaitForReady(true))
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
		counted.count(client, response, response.GetResources()[0].GetResource())
		request = &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: response.GetNonce()}
	}
}
