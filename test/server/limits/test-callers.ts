import { pino } from "pino";
import type { Clock } from "../../../src/base/clock.ts";
import { anonymous, type Identity } from "../../../src/identity/identity.ts";
import { CallerLimits } from "../../../src/server/limits/caller-limits.ts";
import { Callers, type CallOwner } from "../../../src/server/limits/callers.ts";
import {
  defaultServerLimits,
  type ServerLimits,
} from "../../../src/server/limits/server-limits.ts";
import { FakeClock } from "../../fake-clock.ts";

/** The limits of callers, with these bounds. */
export function callerLimits(clock: Clock, bounds: Partial<ServerLimits> = {}): CallerLimits {
  const limits = { ...defaultServerLimits, ...bounds };
  return new CallerLimits(clock, new Callers(clock, limits), limits, pino({ level: "silent" }));
}

/** An identity of this name. */
export function named(name: string): Identity {
  return { name, groups: [], source: "token", expiresAt: undefined };
}

const callers = callerLimits(new FakeClock()).callers;

/** The anonymous caller of a host, on a connection. */
export function ownerOf(connection: object, host = "10.0.0.1"): CallOwner {
  return callers.ownerOf({ connection, identity: anonymous, address: `${host}:1` });
}
