package io.frazil.connect;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import org.apache.kafka.connect.errors.ConnectException;

/** The metrics by name, from {@code metrics.tsv}, which is generated from the one list in {@code core/metrics}. */
final class MetricTable {
    private static final String TABLE = "metrics.tsv";
    /** The value of what is not known yet. */
    private static final long UNKNOWN = Long.MIN_VALUE;

    private MetricTable() {}

    /** Returns all families, in the order of their numbers in a snapshot. */
    static List<Family> families() {
        return Loaded.FAMILIES;
    }

    /** Returns the family of this name, which is one of the table's. */
    static Family family(String name) {
        for (Family family : Loaded.FAMILIES) {
            if (family.name.equals(name)) {
                return family;
            }
        }
        throw new IllegalArgumentException(name);
    }

    /** The MBeans of one type. */
    static final class Family {
        private final String name;
        private final List<String> keys;
        private final List<String> metrics = new ArrayList<>();
        /** For each metric whether its value is a moment, of which the age is shown. */
        private final List<Boolean> moments = new ArrayList<>();
        private final List<MBeanAttributeInfo> attributes = new ArrayList<>();

        private Family(String name, List<String> keys) {
            this.name = name;
            this.keys = keys;
        }

        String name() {
            return name;
        }

        List<String> keys() {
            return keys;
        }

        /** Returns how many values a bean has. */
        int size() {
            return metrics.size();
        }

        /** Returns the place of a metric among the values, or -1. */
        int indexOf(String metric) {
            return metrics.indexOf(metric);
        }

        List<String> metrics() {
            return metrics;
        }

        /** Returns what a value of the metric at {@code index} shows at {@code nowMillis}. */
        Number shown(int index, long value, long nowMillis) {
            if (!moments.get(index)) {
                return value;
            }
            return value == UNKNOWN ? Double.NaN : (double) Math.max(0, nowMillis - value);
        }

        MBeanInfo info() {
            MBeanAttributeInfo[] all = attributes.toArray(new MBeanAttributeInfo[0]);
            return new MBeanInfo(MetricBean.class.getName(), name, all, null, null, null);
        }

        private void add(String metric, String kind, String documentation) {
            boolean moment = kind.equals("since");
            String type = moment ? Double.class.getName() : Long.class.getName();
            metrics.add(metric);
            moments.add(moment);
            attributes.add(new MBeanAttributeInfo(metric, type, documentation, true, false, false));
        }
    }

    /** Read with the first use, not with the class. */
    private static final class Loaded {
        static final List<Family> FAMILIES = load();

        private static List<Family> load() {
            List<Family> families = new ArrayList<>();
            try (InputStream stream = MetricTable.class.getResourceAsStream(TABLE)) {
                if (stream == null) {
                    throw new ConnectException("the jar lacks " + TABLE + "; install it anew");
                }
                BufferedReader lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (!line.startsWith("#")) {
                        add(families, line.split("\t", -1));
                    }
                }
            } catch (IOException e) {
                throw new ConnectException("the jar's " + TABLE + " cannot be read; install it anew", e);
            }
            return Collections.unmodifiableList(families);
        }

        private static void add(List<Family> families, String[] row) {
            Family last = families.isEmpty() ? null : families.get(families.size() - 1);
            if (last == null || !last.name.equals(row[0])) {
                List<String> keys = row[1].isEmpty() ? List.of() : Arrays.asList(row[1].split(","));
                last = new Family(row[0], keys);
                families.add(last);
            }
            last.add(row[2], row[3], row[4]);
        }
    }
}
