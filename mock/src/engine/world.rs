//! Components that know each other only by messages, on one agenda.
//!
//! A component owns its state and reads and writes nothing of another: what it knows of others came in a message, with the
//! delay that its sender gave it. One world of one seed always does the same, message by message.

use crate::engine::agenda::{Agenda, Time};

/// A component of one [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentId(u32);

impl ComponentId {
    /// Returns the number of components that were added before this one.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A part of a system that receives messages.
///
/// A world holds components of one type. If it has several kinds, that type is an enum, and no call is virtual.
pub trait Component {
    /// What is sent between components.
    type Message;

    /// Acts on a message that arrives now.
    fn receive(&mut self, message: Self::Message, context: &mut Context<'_, Self::Message>);
}

/// All that a component sees of its world while it acts on a message.
#[derive(Debug)]
pub struct Context<'a, M> {
    now: Time,
    me: ComponentId,
    agenda: &'a mut Agenda<(ComponentId, M)>,
}

impl<M> Context<'_, M> {
    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the id of the component that acts.
    pub fn me(&self) -> ComponentId {
        self.me
    }

    /// Sends `message` to a component, which receives it after `delay` picoseconds.
    ///
    /// Messages that arrive at one instant are received in the order in which they were sent.
    pub fn send(&mut self, to: ComponentId, delay: Time, message: M) {
        self.agenda.add(self.now.saturating_add(delay), (to, message));
    }

    /// Sends `message` to the component that acts.
    pub fn wake(&mut self, delay: Time, message: M) {
        self.send(self.me, delay, message);
    }
}

/// Components, and the messages under way.
///
/// ```
/// use fpga_mock::engine::{Component, ComponentId, Context, World};
///
/// /// Sends a ball back, until it has received so many.
/// struct Player {
///     partner: Option<ComponentId>,
///     most: u32,
/// }
///
/// impl Component for Player {
///     type Message = u32;
///
///     fn receive(&mut self, received: u32, context: &mut Context<'_, u32>) {
///         if let Some(partner) = self.partner.filter(|_| received < self.most) {
///             context.send(partner, 100, received + 1);
///         }
///     }
/// }
///
/// let mut world = World::default();
/// let first = world.add(Player { partner: None, most: 5 });
/// let second = world.add(Player { partner: Some(first), most: 5 });
/// world.get_mut(first).partner = Some(second);
/// world.post(first, 1_000, 0);
/// while world.step() {}
/// assert_eq!(world.now(), 1_500);
/// ```
#[derive(Debug)]
pub struct World<C: Component> {
    components: Vec<C>,
    agenda: Agenda<(ComponentId, C::Message)>,
    now: Time,
}

impl<C: Component> Default for World<C> {
    fn default() -> Self {
        World { components: Vec::new(), agenda: Agenda::default(), now: 0 }
    }
}

impl<C: Component> World<C> {
    /// Adds a component. Ids are given in order, from 0.
    pub fn add(&mut self, component: C) -> ComponentId {
        self.components.push(component);
        ComponentId((self.components.len() - 1) as u32)
    }

    /// Returns a component, for the host.
    ///
    /// # Panics
    /// If `id` is of another world and too large for this one.
    pub fn get(&self, id: ComponentId) -> &C {
        &self.components[id.index()]
    }

    /// Returns a component, for the host: what the host changes here, it tells the component by [`World::post`] if the
    /// component is to act on it.
    ///
    /// # Panics
    /// If `id` is of another world and too large for this one.
    pub fn get_mut(&mut self, id: ComponentId) -> &mut C {
        &mut self.components[id.index()]
    }

    /// Returns all components in the order of their ids.
    pub fn components(&self) -> impl Iterator<Item = (ComponentId, &C)> {
        (0..).map(ComponentId).zip(&self.components)
    }

    /// Posts a message that `to` receives at the time `at`, or now if `at` is past.
    pub fn post(&mut self, to: ComponentId, at: Time, message: C::Message) {
        self.agenda.add(at.max(self.now), (to, message));
    }

    /// Returns the present time: that of the last message, or the end of [`World::run_until`].
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the arrival of the next message, if one is under way.
    pub fn next_at(&self) -> Option<Time> {
        self.agenda.next_at()
    }

    /// Lets the next message arrive; returns whether there was one.
    pub fn step(&mut self) -> bool {
        let Some((at, (to, message))) = self.agenda.take() else { return false };
        self.now = at;
        let mut context = Context { now: at, me: to, agenda: &mut self.agenda };
        self.components[to.index()].receive(message, &mut context);
        true
    }

    /// Lets all messages up to and including the time `end` arrive. Then it is `end`, or later if it was.
    pub fn run_until(&mut self, end: Time) {
        while self.agenda.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what it receives, and passes on what is not 0, one less.
    #[derive(Default)]
    struct Relay {
        next: Vec<(ComponentId, Time)>,
        received: Vec<(Time, u32)>,
    }

    impl Component for Relay {
        type Message = u32;

        fn receive(&mut self, message: u32, context: &mut Context<'_, u32>) {
            self.received.push((context.now(), message));
            if let Some(less) = message.checked_sub(1) {
                self.next.iter().for_each(|(to, delay)| context.send(*to, *delay, less));
                context.wake(7, 0);
            }
        }
    }

    fn ring(size: u32) -> World<Relay> {
        let mut world = World::default();
        let ids: Vec<ComponentId> = (0..size).map(|_| world.add(Relay::default())).collect();
        for (index, id) in ids.iter().enumerate() {
            let next = ids[(index + 1) % ids.len()];
            world.get_mut(*id).next = vec![(next, 10), (*id, 25)];
        }
        world
    }

    #[test]
    fn messages_arrive_at_their_times_in_the_order_of_sending() {
        let mut world = ring(2);
        let (first, second) = (ComponentId(0), ComponentId(1));
        world.post(first, 5, 1);
        world.post(first, 5, 2);
        assert_eq!(world.next_at(), Some(5));
        world.run_until(15);
        assert_eq!(world.get(first).received, [(5, 1), (5, 2), (12, 0), (12, 0)]);
        assert_eq!(world.get(second).received, [(15, 0), (15, 1)]);
        assert_eq!(world.now(), 15);
    }

    #[test]
    fn a_world_repeats_itself() {
        let run = || {
            let mut world = ring(5);
            world.post(ComponentId(3), 1, 9);
            while world.step() {}
            world.components().map(|(_, relay)| relay.received.clone()).collect::<Vec<_>>()
        };
        let once = run();
        assert!(once.iter().all(|received| received.len() > 50));
        assert_eq!(once, run());
    }

    #[test]
    fn time_never_goes_back() {
        let mut world = ring(1);
        world.run_until(100);
        world.post(ComponentId(0), 40, 0);
        world.run_until(60);
        assert_eq!(world.now(), 100);
        assert!(world.get(ComponentId(0)).received.is_empty());
        world.run_until(100);
        assert_eq!(world.get(ComponentId(0)).received, [(100, 0)]);
    }
}
