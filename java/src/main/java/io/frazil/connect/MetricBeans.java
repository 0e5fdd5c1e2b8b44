package io.frazil.connect;

import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.utils.Sanitizer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The MBeans of all tasks of this process, in its platform server.
 *
 * <p>Tasks share beans: those of a table or connector are there while any task shows them, and the last
 * one takes them away. A server that does not take a bean costs its metrics and nothing else.
 */
final class MetricBeans {
    private static final String DOMAIN = "io.frazil.connect";
    private static final Logger LOG = LoggerFactory.getLogger(MetricBeans.class);
    private static final Map<String, Shared> BEANS = new HashMap<>();

    private MetricBeans() {}

    /** A bean and who shows it. */
    private static final class Shared {
        final MetricBean bean;
        final Set<Object> owners = new HashSet<>();
        /** Whether the server has it. */
        boolean registered;

        Shared(MetricBean bean) {
            this.bean = bean;
        }
    }

    /** Returns the full name of a bean. */
    static String nameOf(MetricTable.Family family, List<String> values) {
        StringBuilder name = new StringBuilder(DOMAIN).append(":type=").append(family.name());
        for (int i = 0; i < values.size(); i++) {
            name.append(',').append(family.keys().get(i)).append('=');
            name.append(Sanitizer.jmxSanitize(values.get(i)));
        }
        return name.toString();
    }

    /** Shows a bean for {@code owner}, who {@link #release releases} it once, and returns it. */
    static synchronized MetricBean acquire(Object owner, String name, MetricTable.Family family) {
        Shared shared = BEANS.computeIfAbsent(name, unused -> new Shared(new MetricBean(family)));
        if (shared.owners.isEmpty()) {
            try {
                server().registerMBean(shared.bean, new ObjectName(name));
                shared.registered = true;
            } catch (JMException | RuntimeException e) {
                LOG.warn("The MBean {} cannot be registered; its metrics are not shown", name, e);
            }
        }
        shared.owners.add(owner);
        return shared.bean;
    }

    /** {@code owner} shows the bean no more. */
    static synchronized void release(Object owner, String name) {
        Shared shared = BEANS.get(name);
        if (shared == null || !shared.owners.remove(owner) || !shared.owners.isEmpty()) {
            return;
        }
        BEANS.remove(name);
        if (shared.registered) {
            try {
                server().unregisterMBean(new ObjectName(name));
            } catch (JMException | RuntimeException e) {
                LOG.warn("The MBean {} cannot be taken away", name, e);
            }
        }
    }

    private static MBeanServer server() {
        return ManagementFactory.getPlatformMBeanServer();
    }
}
