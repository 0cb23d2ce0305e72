/** A file of etcd's and texts in it, each of which occurs, and the replacement of each. */
type Change = readonly [file: string, ...replaced: (readonly [text: string, by: string])[]];

/**
 * What differs in etcd's test framework. Of integration (and common) all files are as without a proxy, and the address of each
 * member is that of its front. e2e has a proxy of its own before each member, with the tag cluster_proxy.
 */
export const changes: readonly Change[] = [
  [
    "framework/integration/cluster.go",
    ["\tGRPCBridge     Bridge\n", "\tGRPCBridge     Bridge\n\tfront *front\n\tbridgePort string\n"],
    // As etcd has it. With the five minutes of grpc-go, members close connections that are checked during a long call.
    [
      "m.GRPCServerOpts = []grpc.ServerOption{}",
      "m.GRPCServerOpts = []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second})}",
    ],
    // Fronts connect by TCP, and to a bridge always at the same port.
    [
      "func (m *Member) listenGRPC() error {\n",
      "func (m *Member) listenGRPC() error {\n\tm.UseTCP = true\n",
    ],
    ['\t\tbridgePort = "0"\n', "\t\tbridgePort = m.keptBridgePort()\n"],
    ["transport.NewUnixListener(bridgeAddr)", 'net.Listen("tcp", bridgeAddr)'],
    [
      '\tm.GRPCURL = m.clientScheme() + "://" + addr\n',
      '\t_, m.bridgePort, _ = net.SplitHostPort(addr)\n\tm.GRPCURL = m.clientScheme() + "://" + addr\n',
    ],
    [
      '\tif m.GRPCURL != "" && m.Client == nil {\n',
      '\tif err = m.throughFront(); err != nil {\n\t\treturn err\n\t}\n\tif m.GRPCURL != "" && m.Client == nil {\n',
    ],
    [
      "\tc.waitVersion()\n\tfor",
      "\tc.waitVersion()\n\tif err := c.waitUntilCached(); err != nil {\n\t\tt.Fatal(err)\n\t}\n\tfor",
    ],
    [
      "\tm.Close()\n\tif !m.KeepDataDirTerminate",
      "\tm.Close()\n\tm.front.stop()\n\tif !m.KeepDataDirTerminate",
    ],
  ],
  [
    "framework/e2e/cluster_proxy.go",
    ["import (\n", 'import (\n\t"os"\n'],
    // The first line of etcd-proxy and of serve.
    ["started gRPC proxy", "serves gRPC on"],
    ["execPath: cfg.ExecPath", 'execPath: os.Getenv("FRONT")'],
    // A port that no member has, also with a proxy between the members.
    ["proxyListenURL(cfg, 3)", "proxyListenURL(cfg, 2503)"],
    // It continues while the member is restarted after a fault.
    [
      "\tif err := v3p.start(); err != nil {\n",
      "\tif v3p.proc != nil {\n\t\treturn nil\n\t}\n\tif err := v3p.start(); err != nil {\n",
    ],
  ],
  // For machines that are slower, or do something else as well.
  [
    "robustness/traffic/traffic.go",
    ["200 * time.Millisecond\n\tWatchTimeout", "5 * time.Second\n\tWatchTimeout"],
    ["\tWatchTimeout                  = ", "\tWatchTimeout                  = 5 * "],
    ["MinimalQPS:                     100", "MinimalQPS:                     1"],
  ],
  ["robustness/main_test.go", ["= time.Second\n", "= 10 * time.Second\n"]],
  // In which they also start a cluster, and here its fronts.
  ...["alarm", "auth", "compact", "defrag", "endpoint", "kv", "lease", "maintenance_auth"]
    .concat("member", "role", "status", "txn", "user", "wait_leader")
    .map(
      (name): Change => [`common/${name}_test.go`, [", 10*time.Second)\n", ", 60*time.Second)\n"]],
    ),
];
