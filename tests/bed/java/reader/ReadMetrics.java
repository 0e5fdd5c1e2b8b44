import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import javax.management.Attribute;
import javax.management.InstanceNotFoundException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads MBeans of another JVM on this machine, whose pid is the argument, as JConsole does.
 *
 * <p>Each line of the standard input is a pattern of names. The answer has a line {@code NAME TAB ATTRIBUTE
 * TAB VALUE} for each attribute of each bean, and ends with an empty line.
 */
public final class ReadMetrics {
    private ReadMetrics() {}

    public static void main(String[] args) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(args[0]);
        JMXServiceURL address = new JMXServiceURL(machine.startLocalManagementAgent());
        machine.detach();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (JMXConnector connector = JMXConnectorFactory.connect(address)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (String pattern = in.readLine(); pattern != null; pattern = in.readLine()) {
                for (ObjectName name : server.queryNames(new ObjectName(pattern), null)) {
                    try {
                        print(server, name, out);
                    } catch (InstanceNotFoundException e) {
                        continue; // It went away since it was found.
                    }
                }
                out.println();
            }
        }
    }

    private static void print(MBeanServerConnection server, ObjectName name, PrintStream out) throws Exception {
        MBeanAttributeInfo[] infos = server.getMBeanInfo(name).getAttributes();
        String[] attributes = new String[infos.length];
        for (int i = 0; i < infos.length; i++) {
            attributes[i] = infos[i].getName();
        }
        for (Attribute attribute : server.getAttributes(name, attributes).asList()) {
            out.println(name + "\t" + attribute.getName() + "\t" + attribute.getValue());
        }
    }
}
