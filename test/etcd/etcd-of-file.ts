import { afterAll } from "vitest";
import { type Etcd, type EtcdOptions, startEtcd } from "./etcd.ts";

/**
 * One etcd for the tests of the file that calls this at its top: started on first use, and stopped after the last test.
 * Tests that share it use prefixes of their own.
 */
export function etcdOfFile(options: EtcdOptions = {}): () => Promise<Etcd> {
  let started: Promise<Etcd> | undefined;
  afterAll(async () => {
    await (await started)?.stop();
  });
  return () => {
    started ??= startEtcd(options);
    return started;
  };
}
