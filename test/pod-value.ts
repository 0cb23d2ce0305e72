const names = ["api", "web", "worker", "cache", "indexer"];
const namespaces = ["payments", "checkout", "frontend", "search", "platform", "data"];

/** A small generator of numbers, so that each value is the same in each run. */
function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b_3c6d) + 0x9e37_79b9) | 0;
    return ((state ^ (state >>> 12)) >>> 0) / 2 ** 32;
  };
}

/** A Pod of Kubernetes in JSON, about 1 KiB, with names, ids, addresses and times of its own. */
export function podValue(i: number): Buffer {
  const next = numbersFrom(i + 1);
  const pick = (from: readonly string[]): string =>
    from[Math.floor(next() * from.length)] as string;
  const hex = (digits: number): string =>
    Array.from({ length: digits }, () => Math.floor(next() * 16).toString(16)).join("");
  const [app, namespace, hash] = [pick(names), pick(namespaces), hex(10)];
  const time = new Date(1.75e12 + Math.floor(next() * 1e10)).toISOString();
  const ip = (net: string): string =>
    `${net}.${Math.floor(next() * 250)}.${Math.floor(next() * 250)}`;
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `${app}-${hash}-${hex(5)}`,
      namespace,
      uid: `${hex(8)}-${hex(4)}-4${hex(3)}-8${hex(3)}-${hex(12)}`,
      creationTimestamp: time,
      labels: {
        app,
        "app.kubernetes.io/part-of": namespace,
        "pod-template-hash": hash,
        version: `v1.${Math.floor(next() * 40)}.${Math.floor(next() * 7)}`,
      },
      annotations: { "example.com/owner": `team-${namespace}`, "example.com/config": hex(40) },
      ownerReferences: [
        { apiVersion: "apps/v1", kind: "ReplicaSet", name: `${app}-${hash}`, controller: true },
      ],
    },
    spec: {
      nodeName: `ip-10-0-${Math.floor(next() * 250)}-7.eu-west-1.compute.internal`,
      serviceAccountName: app,
      restartPolicy: "Always",
      containers: [
        {
          name: app,
          image: `registry.example.com/${namespace}/${app}:${hex(12)}`,
          ports: [{ containerPort: 8080, protocol: "TCP" }],
          resources: {
            requests: { cpu: "250m", memory: "256Mi" },
            limits: { cpu: "1", memory: `${256 * (1 + Math.floor(next() * 4))}Mi` },
          },
        },
      ],
    },
    status: {
      phase: next() < 0.9 ? "Running" : "Pending",
      podIP: ip("10.1"),
      hostIP: ip("10.0"),
      startTime: time,
      conditions: [{ type: "Ready", status: next() < 0.9 ? "True" : "False" }],
    },
  };
  return Buffer.from(JSON.stringify(pod));
}
