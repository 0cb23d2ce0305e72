import type { Endpoint } from "./endpoint.ts";
import type { Relay } from "./relay.ts";

/** One replica of the service in front of a cluster, with a network of its own on both sides. */
export interface Replica extends Endpoint {
  readonly relay: Relay;
  /** Through which it reaches etcd: one for each member, in their order. */
  readonly upstream: readonly Relay[];
  /** A client with a keepalive would detect it, so its failure listeners are called. */
  disturb(): void;
  /** Starts it, on its relay's address, and resolves when it is ready. No effect while it runs. */
  start(): Promise<void>;
  /** Ends its networks' faults, and resumes or restarts it. */
  heal(): Promise<void>;
  /** Ends it for good. Idempotent. */
  stop(): Promise<void>;
}

/** How a replica is configured. */
export interface ReplicaOptions {
  readonly name: string;
  /** The resource's prefix in etcd. */
  readonly prefix: string;
  /** The client ports of etcd's members. */
  readonly etcd: readonly number[];
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  readonly historyKey?: string | undefined;
  /** Maximum number of events in the event window. Default 100,000. */
  readonly historyEvents?: number | undefined;
  /** Whether watches from before the window are read from etcd, of a replica in this process. Default true. */
  readonly hasDeepReads?: boolean | undefined;
  /** The number of its workers. Of child replicas only. Default 1: it serves clients itself. */
  readonly workers?: number | undefined;
  /**
   * The prefix in etcd of a second resource, `bulk`, for attacks. Of child replicas only. Default: it does not serve that
   * resource.
   */
  readonly bulkPrefix?: string | undefined;
}

/** The fields that objects can be selected by. */
export const fields = ["spec.node"];
