package io.frazil.connect;

import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.MBeanException;
import javax.management.MBeanInfo;
import javax.management.ReflectionException;

/** One MBean: the last values that a snapshot had for it, read-only. Any thread may read it. */
final class MetricBean implements DynamicMBean {
    private final MetricTable.Family family;
    private volatile long[] values;
    /** Brings values that are newer, if those there are have become old. */
    private volatile Runnable refresh;

    MetricBean(MetricTable.Family family) {
        this.family = family;
        this.values = new long[family.size()];
        this.refresh = () -> {};
    }

    /** Takes in the values of a snapshot, and who can bring newer ones. */
    void set(long[] newest, Runnable source) {
        values = newest;
        refresh = source;
    }

    @Override
    public Object getAttribute(String name) throws AttributeNotFoundException {
        int index = family.indexOf(name);
        if (index < 0) {
            throw new AttributeNotFoundException(family.name() + " has no metric " + name);
        }
        refresh.run();
        return family.shown(index, values[index], System.currentTimeMillis());
    }

    @Override
    public AttributeList getAttributes(String[] names) {
        refresh.run();
        long now = System.currentTimeMillis();
        long[] read = values;
        AttributeList found = new AttributeList();
        for (String name : names) {
            int index = family.indexOf(name);
            if (index >= 0) { // As the interface wants it: what is not there is left out.
                found.add(new Attribute(name, family.shown(index, read[index], now)));
            }
        }
        return found;
    }

    @Override
    public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
        throw new AttributeNotFoundException("metrics can only be read");
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
        return new AttributeList();
    }

    @Override
    public Object invoke(String action, Object[] arguments, String[] signature)
            throws MBeanException, ReflectionException {
        throw new ReflectionException(new NoSuchMethodException(action), "metrics have no operations");
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        return family.info();
    }
}
