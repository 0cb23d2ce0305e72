import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { etcdBinaries } from "../../../scripts/etcd.ts";
import { proxyFlags } from "../../../src/cli/etcd-proxy/proxy-flags.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { CommandProcess } from "../serve/serve-process.ts";

const etcdOf = etcdOfFile();
const run = promisify(execFile);

/** Flags of 3.5.21, 3.6 and 3.7 that older releases lack. Their types are those of Go's flag package, "" for a switch. */
const newerFlags: Readonly<Record<string, string>> = {
  "tls-min-version": "string",
  "tls-max-version": "string",
  "experimental-enable-grpc-logging": "",
};

/** The flags that the help of the installed etcd names, with their types: "" for a switch. */
async function flagsOfEtcd(): Promise<Readonly<Record<string, string>>> {
  const { etcd } = await etcdBinaries();
  const { stdout } = await run(etcd, ["grpc-proxy", "start", "--help"]);
  const lines = stdout.matchAll(/^ +(?:-\w, )?--([\w-]+)(?: (\w+))?(?: {2,}|$)/gm);
  return Object.fromEntries([...lines].map(([, name = "", type = ""]) => [name, type]));
}

test("the flags are those that the help of the real etcd grpc-proxy names, with values where it has them", async () => {
  const { help, ...flags } = await flagsOfEtcd();
  expect(help).toBe("");
  expect(Object.keys(flags).length).toBeGreaterThan(30);
  const takesValue = (type: string): boolean => type !== "";
  const theirs = Object.entries({ ...newerFlags, ...flags }).map(([name, type]) => [
    name,
    takesValue(type),
  ]);
  const { cache: _, ...own } = proxyFlags;
  const ours = Object.entries(own).map(([name, { value }]) => [name, value !== undefined]);
  expect(Object.fromEntries(ours)).toEqual(Object.fromEntries(theirs));
});

/** Values that are accepted: those that the help names as defaults, or others without an effect on the test. */
const values: Readonly<Record<string, string>> = {
  "advertise-client-url": "127.0.0.1:23790",
  "auto-tls": "false",
  "data-dir": "default.proxy",
  "dial-keepalive-time": "1m30s",
  "dial-keepalive-timeout": "20s",
  "endpoints-auto-sync-interval": "30s",
  "grpc-keepalive-interval": "2h0m0s",
  "grpc-keepalive-min-time": "5s",
  "grpc-keepalive-timeout": "20s",
  "insecure-discovery": "false",
  "insecure-skip-tls-verify": "F",
  "listen-addr": "127.0.0.1:0",
  "max-concurrent-streams": "4294967295",
  "max-recv-bytes": "2147483647",
  "max-send-bytes": "1572864",
  "metrics-addr": "http://127.0.0.1:0",
  "resolver-ttl": "0",
  "self-signed-cert-validity": "1",
  "tls-min-version": "TLS1.2",
};

test("etcd-proxy starts with all flags of the real etcd grpc-proxy, and of newer ones", async () => {
  const { url } = await etcdOf();
  const { help: _, ...flags } = { ...newerFlags, ...(await flagsOfEtcd()) };
  const args = Object.entries({ ...flags, endpoints: url }).map(([name, type]) => {
    if (name === "endpoints") return `--endpoints=${url}`;
    return `--${name}=${values[name] ?? (type === "" ? "true" : "")}`;
  });
  expect(args.length).toBeGreaterThan(30);
  await using proxy = new CommandProcess(["etcd-proxy", "start", ...args]);
  await proxy.printed(/^started gRPC proxy$/m);
  await proxy.printed(/^warning: --data-dir has no effect: /m);
  await proxy.printed(/^warning: --tls-min-version has no effect without --cert-file\.$/m);
});
