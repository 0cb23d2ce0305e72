import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import type { AuditEntry, AuditLevel, RunningServer } from "../../../src/server/server.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { ConnectDoor } from "../../../src/web/connect-door.ts";
import { startReady } from "../../cacher/ready.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { serve } from "../served.ts";
import { authenticatorsOf } from "./callers.ts";

/** The callers that have a token, some with a group. */
const callers = [
  "app",
  "stranger",
  "dropper",
  "ann,admins",
  "s/ann",
  "s/bob",
  "cid",
  "root",
  "ann",
  "bob",
];

/** A server with a policy and an audit. */
export interface Guarded {
  readonly server: RunningServer;
  readonly authorizer: Authorizer;
  readonly storages: ReadonlyMap<string, MemoryStorage>;
  readonly audited: AuditEntry[];
  readonly clock: ManualTimers;
  /** Puts an object directly into the storage of a resource. */
  put(resource: string, key: string, value?: string): Promise<void>;
  /** Replaces the policy, as a changed file does. */
  change(yaml: string): void;
}

/** Serves these resources, each a Cacher over the embedded store, by the policy. */
export async function serveGuarded(
  yaml: string,
  names: readonly string[] = ["pods", "secrets"],
  level: AuditLevel = "all",
): Promise<Guarded> {
  const clock = new ManualTimers();
  const storages = new Map<string, MemoryStorage>();
  const caches = new Map<string, Cacher>();
  const logger = pino({ level: "silent" });
  const store = new MemoryStore({ clock });
  for (const name of names) {
    const storage = new MemoryStorage({ store, resource: name });
    const cacher = new Cacher({ storage, clock, logger, name });
    await startReady(cacher);
    onTestFinished(() => cacher.close());
    storages.set(name, storage);
    caches.set(name, cacher);
  }
  const authorizer = new Authorizer(policyOf(yaml));
  const audited: AuditEntry[] = [];
  const audit = { level, record: (entry: AuditEntry) => void audited.push(entry) };
  const authenticators = authenticatorsOf(callers);
  const webDoor = new ConnectDoor();
  const options = { authenticators, authorizer, audit, store, webDoor };
  const { server } = await serve(caches, clock, options);
  return {
    ...{ server, authorizer, storages, audited, clock },
    put: async (resource, key, value = "") => {
      await storages.get(resource)?.put({ key, value: Buffer.from(value) });
    },
    change: (next) => authorizer.replace(policyOf(next)),
  };
}
