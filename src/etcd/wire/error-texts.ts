/*
 * etcd's own texts of errors that this process reports in its place. Its clients compare them.
 */

/** After this one clientv3 repeats even a write: nothing of the call has reached etcd. */
export const noConnection = "there is no connection available";

/** Of calls that etcd ends when it shuts down. */
export const stopped = "etcdserver: server stopped";

/** Of reads that etcd does not answer in time. */
export const timedOut = "etcdserver: request timed out";

/** Of calls with `hasleader` to a member that has no leader. */
export const noLeader = "etcdserver: no leader";

/** Of a watch from a revision before the last compaction. */
export const compacted = "etcdserver: mvcc: required revision has been compacted";

/** Of a watch with the id of another one. */
export const duplicateWatch = "mvcc: duplicate watch ID provided on the WatchStream";

/** Of requests beyond a limit. */
export const tooMany = "etcdserver: too many requests";

/** Of reads at a revision that etcd does not have yet. */
export const futureRevision = "etcdserver: mvcc: required revision is a future revision";

/** Of calls without a token, while authentication is on. */
export const noUser = "etcdserver: user name is empty";
