import { mkdir, open, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { within } from "../../base/wait.ts";
import type { ResourceInfo } from "../../client/resource-info.ts";

const fileName = "resources.json";

/** How long a start waits for the disk, in milliseconds, each for what it reads and for what it writes. */
const diskMs = 5_000;

/** What a relay needs to know of a resource of its upstream. Other members are of the moment. */
const resourceInfo = z.object({
  name: z.string(),
  codec: z.enum(["opaque", "json", "protobuf"]).optional(),
  isCached: z.boolean(),
  isReadableInFull: z.boolean(),
  fields: z.array(z.string()),
  indexedFields: z.array(z.string()),
  views: z.array(z.enum(["FULL", "KEYS", "COUNT", "ATTRIBUTES"])),
  etcdKeys: z.object({ prefix: z.string(), historyKey: z.string() }).optional(),
});

const content = z.object({ upstream: z.array(z.string()), resources: z.array(resourceInfo) });

/**
 * The resources of a relay's upstream, kept in a file: with it and the kept caches a relay starts while its upstream is away.
 * A failure to read or write it is logged, and does no more than that such a start waits.
 */
export class KeptResources {
  readonly #folder: string;
  readonly #upstream: readonly string[];
  readonly #logger: Logger;
  readonly #clock: Clock;

  /** `upstream`: its addresses. What was kept of another one is not used. */
  constructor(folder: string, upstream: readonly string[], logger: Logger, clock: Clock) {
    this.#clock = clock;
    this.#folder = folder;
    this.#upstream = [...upstream].sort();
    this.#logger = logger;
  }

  /** Undefined: none are kept, or they can't be used. */
  async load(): Promise<readonly ResourceInfo[] | undefined> {
    const file = join(this.#folder, fileName);
    try {
      const { upstream, resources } = content.parse(
        JSON.parse(await this.#inTime(readFile(file, "utf8"))),
      );
      if (JSON.stringify(upstream) !== JSON.stringify(this.#upstream)) return undefined;
      const now = { revision: 0, oldestRevision: 0, historyId: "", staleForMs: undefined };
      return resources.map((resource) => ({ ...resource, codec: resource.codec, ...now }));
    } catch (error) {
      const isAbsent = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (!isAbsent) {
        const problem = messageOf(error);
        this.#logger.warn({ file, problem }, "the kept resources of the upstream can't be used");
      }
      return undefined;
    }
  }

  /** Replaces the file at once. */
  async keep(resources: readonly ResourceInfo[]): Promise<void> {
    const file = join(this.#folder, fileName);
    try {
      await this.#inTime(this.#write(file, resources));
    } catch (error) {
      const problem = messageOf(error);
      this.#logger.warn({ file, problem }, "the resources of the upstream can't be kept");
    }
  }

  async #write(file: string, resources: readonly ResourceInfo[]): Promise<void> {
    const next = `${file}.new`;
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const handle = await open(next, "w", 0o600);
    try {
      const kept = content.parse({ upstream: this.#upstream, resources });
      await handle.writeFile(JSON.stringify(kept));
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(next, file);
  }

  #inTime<T>(operation: Promise<T>): Promise<T> {
    const expire = (): never => {
      throw new Error(`The disk did not respond within ${diskMs / 1_000} s.`);
    };
    return within(operation, { deadline: { clock: this.#clock, ms: diskMs, expire } });
  }
}
