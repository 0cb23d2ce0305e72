import { isIP } from "node:net";
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

/** Clients of EDS take no names of hosts. */
const address = z.string().refine((text) => isIP(text) !== 0, "it is not an IP address");

/** Empty: not known. */
const place = z.string().default("");

/** An instance in this service's own form. */
const ownForm = z.strictObject({
  address,
  port: z.int().min(1).max(65_535),
  /** Undefined: as one with weight 1. */
  weight: z.int().min(1).max(maxWeight).optional(),
  /** Its number. */
  health: z
    .enum(healthStates)
    .default("UNKNOWN")
    .transform((state) => healthStates.indexOf(state)),
  /** 0 is used first. */
  priority: z.int().min(0).max(128).default(0),
  locality: z.strictObject({ region: place, zone: place, sub_zone: place }).prefault({}),
  // What was parsed is JSON. To check it again would take a second for a value that is nested a thousand times.
  metadata: z.record(z.string(), z.unknown()).optional(),
});

/** An instance in the form of etcd's package naming/endpoints. */
const etcdForm = z.looseObject({
  Op: z.literal(0).optional(),
  /** An IP address and a port, as Go writes them. */
  Addr: z.string().regex(/^(?:\[[^\]]+\]|[^:]+):\d{1,5}$/, "it is not IP:PORT"),
  Metadata: z.unknown().optional(),
});

/** An instance of a service. */
export type Instance = z.infer<typeof ownForm>;

/** Reads a stored instance, in either form. Throws an InvalidValue. */
export function readInstance(stored: Uint8Array): Instance {
  if (stored.byteLength > maxBytes) {
    throw new InvalidValue(
      `It has ${stored.byteLength} bytes, and an instance may have ${maxBytes}.`,
    );
  }
  const json = parse(stored);
  return checked(ownForm, isRecord(json) && "Addr" in json ? ownOf(checked(etcdForm, json)) : json);
}

/** An instance of etcd's form in the own one. */
function ownOf({ Addr: given, Metadata: metadata }: z.infer<typeof etcdForm>): object {
  const colon = given.lastIndexOf(":");
  const host = given.slice(0, colon).replace(/^\[|\]$/g, "");
  const port = Number(given.slice(colon + 1));
  return { address: host, port, ...(isRecord(metadata) && { metadata }) };
}

function isRecord(json: unknown): json is Record<string, unknown> {
  return typeof json === "object" && json !== null && !Array.isArray(json);
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
