import { durableEntries } from "./durable.ts";
import type { CorpusEntry } from "./entry.ts";
import { etcdEntries } from "./etcd.ts";
import { grpcProxyEntries } from "./grpc-proxy.ts";
import { kubernetesEntries } from "./kubernetes.ts";
import { ownEntries } from "./own.ts";
import { plantedEntries } from "./planted.ts";

/** All entries, by where the bug was. */
export const origins: Readonly<Record<string, readonly CorpusEntry[]>> = {
  "etcd and its clients": etcdEntries,
  "grpc-proxy and kine": grpcProxyEntries,
  "Kubernetes' watch cache and client-go": kubernetesEntries,
  "this project": ownEntries,
  "no known bug": [...plantedEntries, ...durableEntries],
};

export const entries: readonly CorpusEntry[] = Object.values(origins).flat();
