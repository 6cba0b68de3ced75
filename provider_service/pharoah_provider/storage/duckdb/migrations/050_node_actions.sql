-- What is to be done with a node because of its class (ADR 50): each change, by learning or by an operator.
CREATE TABLE node_actions (
    node TEXT, action TEXT, node_class TEXT, probability DOUBLE, sick_probability DOUBLE, failures BIGINT,
    reruns BIGINT, wrong_for TEXT[], held_back BOOLEAN, by_operator BOOLEAN, decided_at DOUBLE
);
