import { xdsProblem } from "../../config/assemble-resources.ts";
import type { Config } from "../../config/config.ts";
import { registerXdsMetrics } from "../../telemetry/xds-metrics.ts";
import type { ServedFrom } from "../../xds/served-types.ts";
import type { TypeName } from "../../xds/types.ts";
import type { XdsDoor } from "../../xds/xds-door.ts";
import type { ProcessContext } from "./process-context.ts";
import type { ProcessResources } from "./resources.ts";
import { StartError } from "./start-error.ts";

/**
 * Opens xDS, if the configuration has it. `config` has the resources that are served. Rejects with a StartError if one of those
 * that xDS is served from is not among them, or has no cache.
 */
export async function openXds(
  { xds, resources }: Pick<Config, "xds" | "resources">,
  { served }: Pick<ProcessResources, "served">,
  { clock, logger, meter }: ProcessContext,
): Promise<XdsDoor | undefined> {
  if (xds === undefined) return undefined;
  const from = new Map<TypeName, ServedFrom>();
  for (const { type, resource: name } of xds.mappings) {
    const resource = served.get(name);
    const problem = xdsProblem(name, resources);
    if (resource === undefined || problem !== undefined) {
      throw new StartError(`--xds: ${type}=${name}: ${problem ?? "it is not served."}`);
    }
    from.set(type, { name, resource });
  }
  // A service without it starts faster.
  const { XdsDoor } = await import("../../xds/xds-door.ts");
  const door = new XdsDoor({ resources: from, debounceMs: xds.debounceMs, clock, logger });
  registerXdsMetrics(meter, door);
  return door;
}
