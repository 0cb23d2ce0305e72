import type { Config } from "../../config/config.ts";

/** A warning about options that have no effect any more; undefined: none is used. */
export function obsoleteOptions({ framing }: Pick<Config, "framing">): string | undefined {
  return framing === "node"
    ? "--framing node has no effect any more: the service writes the messages of responses itself"
    : undefined;
}
