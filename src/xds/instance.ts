import { isIP } from "node:net";
import type { JsonObject } from "@bufbuild/protobuf";
import { z } from "zod";
import { InvalidValue } from "./any-types.ts";

/** Maximum size of an instance, in bytes. One is read in one step, and its metadata costs far more than its bytes. */
const maxBytes = 16 * 1024;

/** The maximum weight of an instance: the weights of some thousands of them fit into 32 bits. */
const maxWeight = 1_000_000;

/** The states of health, by their numbers in envoy.config.core.v3.HealthStatus. */
const healthStates = [
  "UNKNOWN",
  "HEALTHY",
  "UNHEALTHY",
  "DRAINING",
  "TIMEOUT",
  "DEGRADED",
] as const;

const port = z.int().min(1).max(65_535);

/** An IP address and a port, as Go writes them. */
const addressForm = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[^:]+)):(?<digits>\d{1,5})$/;

/** An instance in this service's own form. */
const ownForm = z.strictObject({
  address: z.string(),
  port,
  weight: z.int().min(1).max(maxWeight).optional(),
  health: z.enum(healthStates).optional(),
  priority: z.int().min(0).max(128).optional(),
  locality: z
    .strictObject({
      region: z.string().optional(),
      zone: z.string().optional(),
      sub_zone: z.string().optional(),
    })
    .optional(),
  // What was parsed is JSON. To check it again would take a second for a value that is nested a thousand times.
  metadata: z.record(z.string(), z.unknown()).optional(),
});

/** An instance in the form of etcd's package naming/endpoints. */
const etcdForm = z.looseObject({
  Op: z.literal(0).optional(),
  Addr: z.string(),
  Metadata: z.unknown().optional(),
});

/** Where an instance is; empty: not known. */
export interface Locality {
  readonly region: string;
  readonly zone: string;
  readonly subZone: string;
}

/** An instance of a service. */
export interface Instance {
  readonly address: string;
  readonly port: number;
  /** Undefined: as one with weight 1. */
  readonly weight: number | undefined;
  /** As in envoy.config.core.v3.HealthStatus. */
  readonly health: number;
  /** 0 is used first. */
  readonly priority: number;
  readonly locality: Locality;
  /** Undefined: absent. */
  readonly metadata: JsonObject | undefined;
}

const nowhere: Locality = { region: "", zone: "", subZone: "" };

/** Reads a stored instance, in either form. Throws an InvalidValue. */
export function readInstance(stored: Uint8Array): Instance {
  if (stored.byteLength > maxBytes) {
    throw new InvalidValue(
      `It has ${stored.byteLength} bytes, and an instance may have ${maxBytes}.`,
    );
  }
  const json = parse(stored);
  const isEtcd = typeof json === "object" && json !== null && "Addr" in json;
  return isEtcd ? ofEtcd(checked(etcdForm, json)) : ofOwn(checked(ownForm, json));
}

function parse(stored: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(stored), finite);
  } catch (error) {
    throw error instanceof InvalidValue ? error : new InvalidValue("It is not JSON.");
  }
}

/** Of numbers such as 1e999 JavaScript makes Infinity, which no google.protobuf.Struct may have. */
function finite(_key: string, value: unknown): unknown {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  throw new InvalidValue("It has a number that is too large.");
}

function checked<T>(form: z.ZodType<T>, json: unknown): T {
  const { data, error } = form.safeParse(json);
  if (error === undefined) return data;
  const [issue] = error.issues;
  const path = issue?.path.join(".") ?? "";
  throw new InvalidValue(
    `It is not an instance: ${path === "" ? "" : `${path}: `}${issue?.message}.`,
  );
}

function ofOwn(given: z.infer<typeof ownForm>): Instance {
  const { address, port: number, weight, health = "UNKNOWN", priority = 0, locality } = given;
  const { metadata } = given;
  return {
    ...{ address: checkedIp(address), port: number, weight, priority },
    metadata: metadata as JsonObject | undefined,
    health: healthStates.indexOf(health),
    locality:
      locality === undefined
        ? nowhere
        : {
            region: locality.region ?? "",
            zone: locality.zone ?? "",
            subZone: locality.sub_zone ?? "",
          },
  };
}

function ofEtcd({ Addr: given, Metadata: metadata }: z.infer<typeof etcdForm>): Instance {
  const { v6, v4, digits } = addressForm.exec(given)?.groups ?? {};
  const number = port.safeParse(Number(digits));
  if (!number.success) {
    throw new InvalidValue(`Its Addr is ${JSON.stringify(given)}, not IP:PORT.`);
  }
  return {
    ...{ address: checkedIp(v6 ?? v4 ?? ""), port: number.data },
    ...{ weight: undefined, health: 0, priority: 0, locality: nowhere },
    metadata: isRecord(metadata) ? metadata : undefined,
  };
}

function isRecord(json: unknown): json is JsonObject {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

/** Clients of EDS take no names of hosts. */
function checkedIp(address: string): string {
  if (isIP(address) !== 0) return address;
  throw new InvalidValue(`Its address is ${JSON.stringify(address)}, not an IP address.`);
}
