import type {
  DeleteOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  WatchOptions,
} from "../calls/options.ts";
import type { ObjectResult, Page } from "../calls/results.ts";
import type { AtomicBatch } from "./batch-assembler.ts";

/** The calls of a Client: see there. */
export interface ClientCalls {
  get(resource: string, key: string, options?: ReadOptions): Promise<ObjectResult>;
  list(resource: string, options?: ListOptions): AsyncGenerator<Page, void, void>;
  page(resource: string, options?: PageOptions): Promise<Page>;
  watch(resource: string, options?: WatchOptions): AsyncGenerator<AtomicBatch, void, void>;
  put(
    resource: string,
    key: string,
    value: Uint8Array,
    options?: PutOptions,
  ): Promise<ObjectResult>;
  delete(resource: string, key: string, options?: DeleteOptions): Promise<ObjectResult>;
}
