package io.frazil.connect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaException;

/**
 * What {@code validate} asks the brokers: whether the topics are there. Topics may come later, so a
 * missing one is a warning; brokers that cannot be reached are an error where coordination needs them.
 */
final class TopicChecks {
    private static final int WAIT_MS = 5_000;
    private static final Pattern LEGAL = Pattern.compile("[A-Za-z0-9._-]{1,249}");
    private static final String TOPICS = "topics";
    private static final String REGEX = "topics.regex";
    private static final String DEAD_LETTERS = "errors.deadletterqueue.topic.name";

    private TopicChecks() {}

    /** Asks the brokers, when it is known where they are. */
    static List<Problem> of(Map<String, String> config, KafkaSettings settings, String coordination) {
        if (settings.values().isEmpty()) {
            return List.of();
        }
        return of(config, settings.values(), coordination, Admin::create);
    }

    static List<Problem> of(
            Map<String, String> config,
            Map<String, String> settings,
            String coordination,
            Function<Map<String, Object>, Admin> clients) {
        Map<String, Object> values = new HashMap<>(settings);
        values.put("client.id", "frazil-validate");
        values.put("request.timeout.ms", Integer.toString(WAIT_MS));
        values.put("default.api.timeout.ms", Integer.toString(WAIT_MS));
        Admin admin = null;
        try {
            admin = clients.apply(values);
            return compare(config, admin.listTopics().names().get(WAIT_MS, TimeUnit.MILLISECONDS));
        } catch (ExecutionException | TimeoutException | KafkaException e) {
            // A message of these may quote a setting.
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            String key = config.containsKey(KafkaSettings.PREFIX + "bootstrap.servers")
                    ? KafkaSettings.PREFIX + "bootstrap.servers"
                    : Coordination.KEY;
            String message = "the brokers did not tell their topics (" + cause.getClass().getSimpleName()
                    + "): check the address, the login and `" + KafkaSettings.PREFIX + "*`";
            boolean needed = Coordination.isTopic(Map.of(Coordination.RESOLVED_KEY, coordination));
            return List.of(needed ? Problem.error(key, message) : Problem.warning(key, message));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
        } finally {
            if (admin != null) {
                admin.close(Duration.ofSeconds(1));
            }
        }
    }

    /** Compares what is asked for with the topics that this login may see. */
    static List<Problem> compare(Map<String, String> config, Set<String> there) {
        List<Problem> problems = new ArrayList<>();
        for (String topic : listed(config.get(TOPICS))) {
            if (!isLegal(topic)) {
                problems.add(Problem.error(TOPICS, "`" + topic + "` cannot be the name of a topic"));
            } else if (!there.contains(topic)) {
                problems.add(Problem.warning(TOPICS, "topic `" + topic + "` is not there, or this login may not see"
                        + " it; its records are read once it is"));
            }
        }
        String regex = config.get(REGEX);
        if (regex != null && !regex.isBlank()) {
            try {
                Pattern pattern = Pattern.compile(regex);
                if (there.stream().noneMatch(topic -> pattern.matcher(topic).matches())) {
                    problems.add(Problem.warning(REGEX, "matches no topic that is there now; topics that come later"
                            + " are read"));
                }
            } catch (PatternSyntaxException e) {
                problems.add(Problem.error(REGEX, "is no regular expression: " + e.getDescription()));
            }
        }
        String dead = config.get(DEAD_LETTERS);
        if (dead != null && !dead.isBlank() && !isLegal(dead.trim())) {
            problems.add(Problem.error(DEAD_LETTERS, "cannot be the name of a topic"));
        }
        return problems;
    }

    private static Set<String> listed(String topics) {
        Set<String> names = new TreeSet<>();
        for (String topic : topics == null ? new String[0] : topics.split(",")) {
            if (!topic.isBlank()) {
                names.add(topic.trim());
            }
        }
        return names;
    }

    private static boolean isLegal(String topic) {
        return LEGAL.matcher(topic).matches() && !topic.equals(".") && !topic.equals("..");
    }
}
