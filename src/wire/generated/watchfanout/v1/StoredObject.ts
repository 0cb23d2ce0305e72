// Original file: proto/watchfanout/v1/object.proto

import type { Attributes as _watchfanout_v1_Attributes, Attributes__Output as _watchfanout_v1_Attributes__Output } from '../../watchfanout/v1/Attributes.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * One object of the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something increments it, and all
 * keys that the transaction changes have the new one.
 */
export interface StoredObject {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key'?: (string);
  /**
   * The value, exactly as it was written. With a read_mask: the parts of it that the mask names.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * The revision that created the key. It changes when a deleted key is created again.
   */
  'create_revision'?: (number | string | Long);
  /**
   * The revision that last changed the key. In a DELETED event: the revision of the deletion.
   */
  'mod_revision'?: (number | string | Long);
  /**
   * Number of writes of the key since it was created, from 1.
   */
  'version'?: (number | string | Long);
  /**
   * The lease that the key is attached to; 0: no lease. Has up to 63 bits.
   */
  'lease'?: (number | string | Long);
  /**
   * Only with VIEW_ATTRIBUTES: the labels and fields of the value.
   */
  'attributes'?: (_watchfanout_v1_Attributes | null);
  /**
   * Only with VIEW_ATTRIBUTES or a read_mask: the value can't be decoded, so that nothing of it is sent.
   */
  'undecodable'?: (boolean);
}

/**
 * One object of the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something increments it, and all
 * keys that the transaction changes have the new one.
 */
export interface StoredObject__Output {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key': (string);
  /**
   * The value, exactly as it was written. With a read_mask: the parts of it that the mask names.
   */
  'value': (Buffer);
  /**
   * The revision that created the key. It changes when a deleted key is created again.
   */
  'create_revision': (string);
  /**
   * The revision that last changed the key. In a DELETED event: the revision of the deletion.
   */
  'mod_revision': (string);
  /**
   * Number of writes of the key since it was created, from 1.
   */
  'version': (string);
  /**
   * The lease that the key is attached to; 0: no lease. Has up to 63 bits.
   */
  'lease': (string);
  /**
   * Only with VIEW_ATTRIBUTES: the labels and fields of the value.
   */
  'attributes': (_watchfanout_v1_Attributes__Output | null);
  /**
   * Only with VIEW_ATTRIBUTES or a read_mask: the value can't be decoded, so that nothing of it is sent.
   */
  'undecodable': (boolean);
}
