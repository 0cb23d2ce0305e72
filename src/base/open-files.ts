import { kernelText } from "./control-groups.ts";

/**
 * Files that a process keeps for all but its clients' connections: 256 connections of the admin port, 256 to etcd for
 * calls of its API, and its own files, watches and logs.
 */
const reserved = 640;

/** `openFileLimit` of this process. */
export function ownOpenFileLimit(): number | undefined {
  return openFileLimit(kernelText("/proc/self/limits") ?? "");
}

/**
 * The most files, connections included, that a process can have open, which is the hard limit: Node.js raises the soft one
 * to it. `limits` is the kernel's text with its limits. Undefined: there is no limit, or it is not known.
 */
export function openFileLimit(limits: string): number | undefined {
  const [, hard] = /^Max open files +\S+ +(\d+)/m.exec(limits) ?? [];
  return hard === undefined ? undefined : Number(hard);
}

/**
 * The number of `connections` that can be accepted with this limit of open files, so that the reserve is left for
 * everything else. Of a small limit half is reserved.
 */
export function connectionsWithin(openFiles: number, connections: number): number {
  const usable = Math.max(openFiles - reserved, Math.floor(openFiles / 2));
  return Math.min(connections, usable);
}
