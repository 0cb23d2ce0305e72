import type { ServiceContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import type { HealthService, MayKnow, ServingStatus } from "./health-service.ts";

const listWatch = "watchfanout.v1.ListWatchService";
const write = "watchfanout.v1.WriteService";

type Resources = ReadonlyMap<string, ServedResource>;

const ofResource = "resource/";

/**
 * Whether a caller may know a service: each but those of resources that it has no right on, and this service's own if they
 * are not served.
 */
export function mayKnowService({ authorizer, hasOwnServices }: ServiceContext): MayKnow {
  return (identity, service) => {
    if (service.startsWith(ofResource)) {
      return authorizer.mayKnow(identity, service.slice(ofResource.length));
    }
    return hasOwnServices || (service !== listWatch && service !== write);
  };
}

/** The health statuses of a new server, by service name: `""` is the server as a whole. */
export function initialStatuses(resources: Resources): ReadonlyMap<string, ServingStatus> {
  const all = statusOf(isReady(resources));
  const statuses = new Map<string, ServingStatus>([
    ["", all],
    [listWatch, all],
    [write, "SERVING"],
  ]);
  for (const [name, { ready }] of resources) statuses.set(ofResource + name, statusOf(ready));
  return statuses;
}

/** Updates the health statuses from the readiness of the resources. */
export class ServingStatuses {
  readonly #resources: Resources;
  readonly #health: HealthService;
  #wasReady: boolean;
  #isDraining = false;

  constructor(resources: Resources, health: HealthService) {
    this.#resources = resources;
    this.#health = health;
    this.#wasReady = isReady(resources);
    for (const [name, resource] of resources) {
      resource.onReadyChange((ready) => {
        health.set(ofResource + name, statusOf(ready));
        this.#checkReady();
      });
    }
  }

  /** The server shuts down: it is NOT_SERVING from now on. */
  drain(): void {
    this.#isDraining = true;
    this.#setServer("NOT_SERVING");
  }

  /** The server as a whole is SERVING once all caches have synced, and stays so. */
  #checkReady(): void {
    if (this.#wasReady || this.#isDraining || !isReady(this.#resources)) return;
    this.#wasReady = true;
    this.#setServer("SERVING");
  }

  #setServer(status: ServingStatus): void {
    this.#health.set("", status);
    this.#health.set(listWatch, status);
  }
}

/** Whether every resource is ready. */
function isReady(resources: Resources): boolean {
  return [...resources.values()].every(({ ready }) => ready);
}

function statusOf(ready: boolean): ServingStatus {
  return ready ? "SERVING" : "NOT_SERVING";
}
