package io.frazil.conformance;

import java.util.Map;

/** Something that takes the records of a case: this sink, or the one it is compared with. */
interface Sink {
  /** Returns the keys that every case starts from. */
  Map<String, String> defaults(Tables tables);

  /** Delivers the records of a case; what the sink throws is part of the outcome. */
  Outcome run(Case body, Map<String, String> config, Steps steps);
}
