// Answers questions of DNS with CoreDNS's etcd plugin, from records below /skydns/, and prints the answers. The same
// lines must come with etcd and with any server in front of it.
//
//	etcd-coredns ENDPOINT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/coredns/coredns/plugin/etcd"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Service records, by the names that SkyDNS gives them.
var records = map[string]string{
	"/skydns/test/region/prod/a":         `{"host": "10.0.0.1", "port": 8080}`,
	"/skydns/test/region/prod/b":         `{"host": "10.0.0.2", "port": 8081, "priority": 20, "weight": 5}`,
	"/skydns/test/region/dev/a":          `{"host": "2001:db8::1", "ttl": 60}`,
	"/skydns/test/region/dev/name":       `{"host": "a.prod.region.test"}`,
	"/skydns/test/region/text/a":         `{"text": "some text"}`,
	"/skydns/test/region/mail/a":         `{"host": "10.0.0.3", "mail": true, "priority": 7}`,
	"/skydns/test/region/grouped/a":      `{"host": "10.0.0.4", "group": "g1"}`,
	"/skydns/test/region/grouped/b":      `{"host": "10.0.0.5", "group": "g1"}`,
	"/skydns/test/region/invalid/a":      `{"host"`,
	"/skydns/test/dns/ns/a":              `{"host": "10.0.0.6"}`,
	"/skydns/arpa/in-addr/10/0/0/1":      `{"host": "a.prod.region.test"}`,
	"/skydns/test/region/wild/x/service": `{"host": "10.0.0.7"}`,
	"/skydns/test/region/wild/y/service": `{"host": "10.0.0.8"}`,
}

var questions = []struct {
	name  string
	qtype uint16
}{
	{"a.prod.region.test.", dns.TypeA},
	{"prod.region.test.", dns.TypeA},
	{"PROD.Region.test.", dns.TypeSRV},
	{"a.dev.region.test.", dns.TypeAAAA},
	{"name.dev.region.test.", dns.TypeA},
	{"name.dev.region.test.", dns.TypeCNAME},
	{"text.region.test.", dns.TypeTXT},
	{"mail.region.test.", dns.TypeMX},
	{"grouped.region.test.", dns.TypeA},
	{"invalid.region.test.", dns.TypeA},
	{"*.wild.region.test.", dns.TypeA},
	{"service.*.wild.region.test.", dns.TypeSRV},
	{"region.test.", dns.TypeSRV},
	{"none.region.test.", dns.TypeA},
	{"test.", dns.TypeSOA},
	{"test.", dns.TypeNS},
	{"1.0.0.10.in-addr.arpa.", dns.TypePTR},
	{"elsewhere.", dns.TypeA},
}

func ask(plugin *etcd.Etcd) {
	ctx := context.Background()
	for _, question := range questions {
		request := new(dns.Msg)
		request.SetQuestion(question.name, question.qtype)
		recorder := dnstest.NewRecorder(&test.ResponseWriter{})
		code, err := plugin.ServeDNS(ctx, recorder, request)
		fmt.Printf("%s %s: %s, %v\n", question.name, dns.TypeToString[question.qtype], dns.RcodeToString[code], err)
		if recorder.Msg == nil {
			continue
		}
		for _, section := range [][]dns.RR{recorder.Msg.Answer, recorder.Msg.Ns, recorder.Msg.Extra} {
			var lines []string
			for _, record := range section {
				if authority, ok := record.(*dns.SOA); ok {
					authority.Serial = 0 // the time
				}
				lines = append(lines, record.String())
			}
			slices.Sort(lines) // the plugin's own order changes
			fmt.Printf("  %s %q\n", dns.RcodeToString[recorder.Msg.Rcode], lines)
		}
	}
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	check(err)
	defer client.Close()
	ctx := context.Background()
	for key, value := range records {
		_, err := client.Put(ctx, key, value)
		check(err)
	}
	lease, err := client.Grant(ctx, 600)
	check(err)
	_, err = client.Put(ctx, "/skydns/test/region/leased/a", `{"host": "10.0.0.9"}`, clientv3.WithLease(lease.ID))
	check(err)
	plugin := &etcd.Etcd{
		Zones:      []string{"test.", "in-addr.arpa."},
		PathPrefix: "skydns",
		Upstream:   upstream.New(),
		Client:     client,
		Next:       test.ErrorHandler(),
	}
	ask(plugin)
	// A change is in the next answer.
	_, err = client.Delete(ctx, "/skydns/test/region/prod/a")
	check(err)
	_, err = client.Put(ctx, "/skydns/test/region/prod/c", `{"host": "10.0.0.10"}`)
	check(err)
	ask(plugin)
}
