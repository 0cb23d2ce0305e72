package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
)

// front is a watch-fanout before a member. It survives restarts of the member.
type front struct {
	url, port, admin string
}

const frontPatience = 5 * time.Minute

// throughFront gives clients the address of the member's front, which is started if there is none yet.
func (m *Member) throughFront() error {
	if m.GRPCURL == "" {
		return nil
	}
	if m.front == nil {
		f, err := m.startFront()
		if err != nil {
			return err
		}
		m.front = f
	}
	m.GRPCURL = m.front.url
	return nil
}

// keptBridgePort is where the front of a member looks for its bridge.
func (m *Member) keptBridgePort() string {
	if m.bridgePort == "" {
		return "0"
	}
	return m.bridgePort
}

func (m *Member) startFront() (*front, error) {
	member := map[string]string{"etcd": m.GRPCURL}
	// Tests shorten the interval of the members: either of all, or of one.
	interval := v3rpc.GetProgressReportInterval()
	if m.WatchProgressNotifyInterval > 0 {
		interval = m.WatchProgressNotifyInterval
	}
	clients := map[string]string{"watch-progress-notify-interval": fmt.Sprintf("%dms", interval.Milliseconds())}
	if tls := m.ClientTLSInfo; tls != nil {
		clients["tls-cert"], clients["tls-key"] = tls.CertFile, tls.KeyFile
		fixtures := os.Getenv("FIXTURES")
		member["etcd-cert"] = filepath.Join(fixtures, "client-nocn.crt")
		member["etcd-key"] = filepath.Join(fixtures, "client-nocn.key.insecure")
		if tls.TrustedCAFile == "" {
			member["etcd-insecure-skip-verify"] = "on"
		} else {
			member["etcd-ca"] = tls.TrustedCAFile
		}
		if tls.ClientCertAuth {
			clients["tls-client-ca"] = tls.TrustedCAFile
		}
	}
	request, err := json.Marshal(map[string]any{"name": m.Name, "member": member, "clients": clients})
	if err != nil {
		return nil, err
	}
	answer, err := askFronts(http.MethodPost, string(request))
	if err != nil {
		return nil, err
	}
	port, admin, _ := strings.Cut(answer, " ")
	return &front{m.clientScheme() + "://127.0.0.1:" + port, port, "http://127.0.0.1:" + admin}, nil
}

// askFronts sends a request to the process that has all fronts.
func askFronts(method, body string) (string, error) {
	request, err := http.NewRequest(method, os.Getenv("FRONTS"), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := frontClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("no front: %s", answer)
	}
	return string(answer), err
}

// Without connections that stay: tests look for goroutines that are left.
var frontClient = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: frontPatience}

// waitUntilCached waits for the caches of all fronts: before that they would pass everything to etcd.
func (c *Cluster) waitUntilCached() error {
	for _, m := range c.Members {
		if m.front == nil {
			continue
		}
		end := time.Now().Add(frontPatience)
		for !m.front.isReady() {
			if time.Now().After(end) {
				return fmt.Errorf("the front of member %s is not ready", m.Name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

func (f *front) isReady() bool {
	response, err := frontClient.Get(f.admin + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (f *front) stop() {
	if f != nil {
		askFronts(http.MethodDelete, f.port)
	}
}
