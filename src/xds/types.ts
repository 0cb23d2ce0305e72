/**
 * The short names of the types, as options and metrics have them. Their order is that in which they are sent to a client that
 * waits for several: what a resource refers to before the resource itself (make before break).
 */
export const typeNames = ["cds", "eds", "lds", "rds", "sds"] as const;

export type TypeName = (typeof typeNames)[number];

/** One type of resources of xDS. */
export interface XdsType {
  readonly name: TypeName;
  /** What requests and responses name it by. */
  readonly url: string;
  /** The full name of its message. */
  readonly message: string;
  /**
   * Whether a state-of-the-world response has all resources that the client asks for, so that one which it lacks does not
   * exist, and a first request without names asks for all. Otherwise a response has what is new, and only "*" asks for all.
   */
  readonly isWhole: boolean;
  /** Whether its resources name clusters, which have to be there before. */
  readonly refersToClusters: boolean;
  /** The methods of its own service: state of the world, and delta. */
  readonly methods: readonly [string, string];
}

/** By type: its message, and of its own service and methods what differs, as in "cluster.v3.ClusterDiscoveryService/StreamClusters". */
const namesOfType = {
  cds: ["envoy.config.cluster.v3.Cluster", "cluster.v3.Cluster", "Clusters"],
  eds: ["envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoint.v3.Endpoint", "Endpoints"],
  lds: ["envoy.config.listener.v3.Listener", "listener.v3.Listener", "Listeners"],
  rds: ["envoy.config.route.v3.RouteConfiguration", "route.v3.Route", "Routes"],
  sds: ["envoy.extensions.transport_sockets.tls.v3.Secret", "secret.v3.Secret", "Secrets"],
} as const satisfies Readonly<Record<TypeName, readonly [string, string, string]>>;

/** The types, in the order in which they are sent. */
export const xdsTypes: readonly XdsType[] = typeNames.map((name) => {
  const [message, service, method] = namesOfType[name];
  return {
    ...{ name, message, url: `type.googleapis.com/${message}` },
    isWhole: name === "cds" || name === "lds",
    refersToClusters: name === "lds" || name === "rds",
    methods: methodsOf(`${service}DiscoveryService`, method),
  };
});

/** The methods of aggregated discovery: state of the world, and delta. */
export const aggregatedMethods = methodsOf(
  "discovery.v3.AggregatedDiscoveryService",
  "AggregatedResources",
);

function methodsOf(service: string, method: string): readonly [string, string] {
  const path = `/envoy.service.${service}`;
  return [`${path}/Stream${method}`, `${path}/Delta${method}`];
}

/** Asks for all resources of a type. No resource has this name. */
export const wildcard = "*";
