/** The short names of the types that this service serves, as options and metrics have them. */
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

const prefix = "type.googleapis.com/";

function typeOf(
  name: TypeName,
  [message, isWhole]: readonly [message: string, isWhole: boolean],
  [service, method]: readonly [service: string, method: string],
): XdsType {
  const path = `/envoy.service.${service}`;
  return {
    ...{ name, message, isWhole, url: `${prefix}${message}` },
    refersToClusters: name === "lds" || name === "rds",
    methods: [`${path}/Stream${method}`, `${path}/Delta${method}`],
  };
}

/**
 * The types, in the order in which they are sent to a client that waits for several: what a resource refers to before the
 * resource itself (make before break).
 */
export const xdsTypes: readonly XdsType[] = [
  typeOf(
    "cds",
    ["envoy.config.cluster.v3.Cluster", true],
    ["cluster.v3.ClusterDiscoveryService", "Clusters"],
  ),
  typeOf(
    "eds",
    ["envoy.config.endpoint.v3.ClusterLoadAssignment", false],
    ["endpoint.v3.EndpointDiscoveryService", "Endpoints"],
  ),
  typeOf(
    "lds",
    ["envoy.config.listener.v3.Listener", true],
    ["listener.v3.ListenerDiscoveryService", "Listeners"],
  ),
  typeOf(
    "rds",
    ["envoy.config.route.v3.RouteConfiguration", false],
    ["route.v3.RouteDiscoveryService", "Routes"],
  ),
  typeOf(
    "sds",
    ["envoy.extensions.transport_sockets.tls.v3.Secret", false],
    ["secret.v3.SecretDiscoveryService", "Secrets"],
  ),
];

const aggregated = "/envoy.service.discovery.v3.AggregatedDiscoveryService";

/** The methods of aggregated discovery: state of the world, and delta. */
export const aggregatedMethods: readonly [string, string] = [
  `${aggregated}/StreamAggregatedResources`,
  `${aggregated}/DeltaAggregatedResources`,
];

/** Asks for all resources of a type. No resource has this name. */
export const wildcard = "*";
