import { join } from "node:path";
import type { Logger } from "pino";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { messageOf, systemCode } from "../../base/errors.ts";
import { within } from "../../base/wait.ts";
import { nodeDisk, readWhole, replaceWhole } from "../../cache-files/disk.ts";
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

const content = z.object({
  upstream: z.array(z.string()),
  user: z.string(),
  resources: z.array(resourceInfo),
});

/** What decides which resources there are. */
interface ResourcesSource {
  /** Addresses. */
  readonly upstream: readonly string[];
  /** The user that the relay is for the upstream. */
  readonly user: string;
}

/**
 * The resources of a relay's upstream, kept in a file: with it and the kept caches a relay starts while its upstream is away.
 * A failure to read or write it is logged, and does no more than that such a start waits.
 */
export class KeptResources {
  readonly #file: string;
  readonly #source: ResourcesSource;
  readonly #logger: Logger;
  readonly #clock: Clock;

  /** What was kept of another source is not used. */
  constructor(folder: string, { upstream, user }: ResourcesSource, logger: Logger, clock: Clock) {
    this.#file = join(folder, fileName);
    this.#source = { upstream: [...upstream].sort(), user };
    this.#logger = logger;
    this.#clock = clock;
  }

  /** Undefined: none are kept, or they can't be used. */
  async load(): Promise<readonly ResourceInfo[] | undefined> {
    try {
      const text = await this.#inTime(readWhole(nodeDisk, this.#file));
      const { upstream, user, resources } = content.parse(JSON.parse(text.toString("utf8")));
      if (user !== this.#source.user) throw new Error("They are those of another user.");
      if (upstream.join() !== this.#source.upstream.join())
        throw new Error(`They are those of another upstream, ${upstream.join(", ")}.`);
      const now = { revision: 0, oldestRevision: 0, historyId: "", staleForMs: undefined };
      return resources.map((resource) => ({ ...resource, codec: resource.codec, ...now }));
    } catch (error) {
      const isAbsent = systemCode(error) === "ENOENT";
      if (!isAbsent) this.#warn("the kept resources of the upstream can't be used", error);
      return undefined;
    }
  }

  /** Replaces the file at once. */
  async keep(resources: readonly ResourceInfo[]): Promise<void> {
    const kept = content.parse({ ...this.#source, resources });
    const bytes = Buffer.from(JSON.stringify(kept));
    try {
      await this.#inTime(replaceWhole(nodeDisk, this.#file, bytes));
    } catch (error) {
      this.#warn("the resources of the upstream can't be kept", error);
    }
  }

  #warn(text: string, error: unknown): void {
    this.#logger.warn({ file: this.#file, problem: messageOf(error) }, text);
  }

  #inTime<T>(operation: Promise<T>): Promise<T> {
    const expire = (): never => {
      throw new Error(`The disk did not respond within ${diskMs / 1_000} s.`);
    };
    return within(operation, { deadline: { clock: this.#clock, ms: diskMs, expire } });
  }
}
