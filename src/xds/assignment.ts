import { fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { messageOf } from "../base/errors.ts";
import { bytesField, none, number, text } from "../protobuf/fields.ts";
import { InvalidValue } from "./any-types.ts";
import type { Instance } from "./instance.ts";

/** The name in an endpoint's metadata under which load balancers look for theirs. */
const metadataName = "envoy.lb";

/** Maximum weight of a locality: 32 bits. */
const maxWeight = 2 ** 32 - 1;

/** An instance as it is part of assignments. */
export interface EncodedInstance {
  /** Of two instances with the same address the newer one counts: the other one's lease has not expired yet. */
  readonly address: string;
  readonly modRevision: number;
  readonly priority: number;
  readonly weight: number;
  /** Names its locality. */
  readonly localityName: string;
  readonly locality: Instance["locality"];
  /** Its envoy.config.endpoint.v3.LbEndpoint, as a field of the LocalityLbEndpoints. */
  readonly endpoint: Uint8Array;
}

/** Encodes an instance, once for all assignments that have it. Throws an InvalidValue. */
export function encodeInstance(instance: Instance, modRevision: number): EncodedInstance {
  const { address, port, weight, health, priority, locality, metadata } = instance;
  const socketAddress = message(text(0x12, address), number(0x18, port));
  const endpoint = message(
    bytesField(0x0a, bytesField(0x0a, bytesField(0x0a, socketAddress))),
    number(0x10, health),
    metadata === undefined
      ? none
      : bytesField(0x1a, bytesField(0x0a, metadataEntry(metadata as JsonObject))),
    weight === undefined ? none : bytesField(0x22, number(0x08, weight)),
  );
  return {
    address: `${address} ${port}`,
    ...{ modRevision, priority, weight: weight ?? 1, locality },
    localityName: JSON.stringify([priority, locality.region, locality.zone, locality.sub_zone]),
    endpoint: bytesField(0x12, endpoint),
  };
}

/**
 * Encodes the envoy.config.endpoint.v3.ClusterLoadAssignment of a service. The same instances give the same bytes, at every
 * replica: `instances` are sorted by key.
 */
export function encodeAssignment(service: string, instances: Iterable<EncodedInstance>): Buffer {
  const newest = new Map<string, EncodedInstance>();
  for (const instance of instances) {
    const other = newest.get(instance.address);
    if (other === undefined || other.modRevision < instance.modRevision) {
      newest.set(instance.address, instance);
    }
  }
  const localities = new Map<string, EncodedInstance[]>();
  for (const instance of newest.values()) {
    const others = localities.get(instance.localityName);
    if (others === undefined) localities.set(instance.localityName, [instance]);
    else others.push(instance);
  }
  // Clients refuse priorities with gaps.
  const priorities = [...new Set([...newest.values()].map(({ priority }) => priority))].sort(
    (a, b) => a - b,
  );
  const encoded = [...localities]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, endpoints]) => bytesField(0x12, encodeLocality(endpoints, priorities)));
  // Not as arguments, here and below: of more than some 100,000 the stack has no room.
  return Buffer.concat([text(0x0a, service), ...encoded]);
}

/** An envoy.config.endpoint.v3.LocalityLbEndpoints. One without a weight would get no traffic of gRPC's clients. */
function encodeLocality(
  endpoints: readonly EncodedInstance[],
  priorities: readonly number[],
): Buffer {
  const [first] = endpoints;
  const { region = "", zone = "", sub_zone = "" } = first?.locality ?? {};
  const weight = endpoints.reduce((sum, each) => sum + each.weight, 0);
  return Buffer.concat([
    bytesField(0x0a, message(text(0x0a, region), text(0x12, zone), text(0x1a, sub_zone))),
    ...endpoints.map(({ endpoint }) => endpoint),
    bytesField(0x1a, number(0x08, Math.min(weight, maxWeight))),
    number(0x28, priorities.indexOf(first?.priority ?? 0)),
  ]);
}

/** Encodes an entry of the map of an envoy.config.core.v3.Metadata. */
function metadataEntry(metadata: JsonObject): Buffer {
  try {
    const struct = toBinary(StructSchema, fromJson(StructSchema, metadata));
    return message(text(0x0a, metadataName), bytesField(0x12, struct));
  } catch (error) {
    // It is nested too deeply, or has a number that no double holds.
    throw new InvalidValue(`Its metadata is not a google.protobuf.Struct: ${messageOf(error)}.`);
  }
}

function message(...fields: readonly Uint8Array[]): Buffer {
  return Buffer.concat(fields);
}
